"""Pure: the console as one document. Style and scripts are in the page, so a browser paints after one answer.

The files in `static/` are ordinary modules of a browser. Here each becomes a function that returns what the module exports;
only the forms of import and export that those files use are known. A policy allows the two texts by their digests.
Tests: tests/unit/quorum/http/test_console.py.
"""

import base64
import hashlib
import re
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

INDEX: Final = "index.html"
MAIN: Final = "main.js"
STYLE: Final = "console.css"
_IMPORT: Final = re.compile(r'^import (?:\{ ([^}]*) \}|\* as (\w+)) from "\./(\w+\.js)";\n', re.MULTILINE)
_EXPORT: Final = re.compile(r"^export ((?:async )?function|class|const) (\w+)", re.MULTILINE)
_LEFT: Final = re.compile(r"^(import|export)\b", re.MULTILINE)


class Document(NamedTuple):
    text: str
    policy: str
    """The value of Content-Security-Policy."""


def document(files: Mapping[str, str]) -> Document:
    """Return the page with what it names in it.

    Raises:
        ValueError: a module has an import or an export of another form, or modules import each other.
    """
    style, script = files[STYLE], _script(files)
    for text, end in ((style, "</style"), (script, "</script")):
        if end in text.lower():
            raise ValueError(f"{end} would end its element")
    page = files[INDEX]
    for tag, put in (
        (f'<link rel="stylesheet" href="/console/{STYLE}">', f"<style>{style}</style>"),
        (f'<script type="module" src="/console/{MAIN}"></script>', f"<script>{script}</script>"),
    ):
        if page.count(tag) != 1:
            raise ValueError(f"{INDEX} does not have {tag} once")
        page = page.replace(tag, put)
    return Document(page, _policy(script=script, style=style))


def _policy(*, script: str, style: str) -> str:
    """Return a policy: no foreign host, no other script or style, no frame around it, and no text that becomes markup."""
    return "; ".join(
        (
            "default-src 'none'",
            *(f"script-src '{_digest(script)}'", f"style-src '{_digest(style)}'"),
            *("img-src 'self'", "connect-src 'self'"),
            *("base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'"),
            "require-trusted-types-for 'script'",
        )
    )


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _script(files: Mapping[str, str]) -> str:
    done: dict[str, str] = {}
    _add(MAIN, files, done, ())
    return '"use strict";\n' + "".join(done.values())


def _add(name: str, files: Mapping[str, str], done: dict[str, str], around: tuple[str, ...]) -> None:
    """Add a module after those that it imports."""
    if name in around:
        raise ValueError(f"{' imports '.join((*around, name))}: modules that import each other")
    if name in done:
        return
    text = files[name]
    for _, _, imported in _IMPORT.findall(text):
        _add(imported, files, done, (*around, name))
    exported = [found for _, found in _EXPORT.findall(text)]
    body = _EXPORT.sub(r"\1 \2", _IMPORT.sub(_as_constants, text))
    body = "\n".join(_without_comments(body.splitlines()))
    left = _LEFT.search(body)
    if left is not None:
        raise ValueError(f"{name}: an {left[1]} of another form than the others")
    if name == MAIN:
        done[name] = f"(async () => {{\n{body}\n}})();\n"
    else:
        done[name] = f"const {_name(name)} = (() => {{\n{body}\nreturn {{ {', '.join(exported)} }};\n}})();\n"


def _as_constants(found: re.Match[str]) -> str:
    names, whole, name = found.groups()
    if whole is not None:
        return f"const {whole} = {_name(name)};\n"
    return f"const {{ {names} }} = {_name(name)};\n"


def _name(file: str) -> str:
    return f"module_{file.removesuffix('.js')}"


def _without_comments(lines: list[str]) -> Iterator[str]:
    """Leave out comments and empty lines, and what lines begin with; no text of these files goes over several lines."""
    for line in lines:
        bare = line.strip()
        if bare and not bare.startswith(("//", "/**", "* ", "*/")):
            yield bare
