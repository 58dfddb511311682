"""Edge: named clusters of this user: where their controllers are, and what a client shows them.
Tests: tests/unit/ops/verbs/test_context.py.
"""

import json
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from metadata_log.errors import InvalidSettings
from metadata_log.node.addresses import is_node_url
from ops.given import SHOWN, Misuse

VARIABLE: Final = "METAQUORUM_CONTEXT"
"""Chooses a context, before the one in use; set to nothing, it chooses none."""
VERSION: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """One cluster: URLs of controllers or brokers, and the files of SHOWN, by name."""

    bootstrap: tuple[str, ...]
    files: Mapping[str, str] = field(default_factory=dict)
    insecure: bool = False

    def to_json(self) -> dict[str, Any]:
        return {"bootstrap": list(self.bootstrap), **self.files, "insecure": self.insecure}


@dataclass(frozen=True, slots=True)
class Contexts:
    """The contexts by name, and the name of the one in use."""

    by_name: Mapping[str, Context]
    current: str | None = None

    def with_context(self, name: str, context: Context) -> "Contexts":
        return replace(self, by_name={**self.by_name, name: context})

    def using(self, name: str | None) -> "Contexts":
        """Return these with another one in use; None: none of them.

        Raises:
            Misuse: there is none of this name.
        """
        if name is not None:
            self.named(name)
        return replace(self, current=name)

    def without(self, name: str) -> "Contexts":
        """Return these without one; raises as `using`."""
        self.named(name)
        left = {key: context for key, context in self.by_name.items() if key != name}
        return Contexts(left, None if self.current == name else self.current)

    def named(self, name: str) -> Context:
        if name not in self.by_name:
            known = (
                ", ".join(sorted(self.by_name)) or "none yet; metaquorum context set NAME --bootstrap URL,..."
            )
            raise Misuse(f"there is no context {name!r}; there are: {known}")
        return self.by_name[name]


def contexts_file() -> Path:
    """Return where the contexts are: in XDG_CONFIG_HOME, else in ~/.config."""
    home = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(home) / "metaquorum" / "contexts.json"


def chosen(name: str | None = None) -> tuple[str, Context] | None:
    """Return the context of this name, else of METAQUORUM_CONTEXT, else the one in use; None: none is chosen.

    Raises:
        Misuse: there is none of the name.
        InvalidSettings: as `load`.
    """
    name = name or os.environ.get(VARIABLE)
    if name == "":
        return None
    contexts = load()
    name = name or contexts.current
    return None if name is None else (name, contexts.named(name))


def load() -> Contexts:
    """Return the contexts; none where there is no file.

    Raises:
        InvalidSettings: the file is no file of contexts, or another user may write it: it says to whom keys are shown.
    """
    path = contexts_file()
    try:
        with path.open("rb") as file:
            about = os.fstat(file.fileno())
            content = file.read()
    except FileNotFoundError:
        return Contexts({})
    except OSError as error:
        raise InvalidSettings(f"{path}: {error.strerror}") from error
    if about.st_uid not in (os.getuid(), 0) or about.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise InvalidSettings(f"{path}: another user may write it: chmod 600 {path}, or remove it")
    try:
        return _read(json.loads(content))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidSettings(
            f"{path}: no file of contexts ({error}): remove it, and set them again"
        ) from error


def _read(value: Any) -> Contexts:
    if value["version"] != VERSION:
        raise ValueError(f"version {value['version']}")
    found: dict[str, Context] = {}
    for name, each in value["contexts"].items():
        urls = tuple(each["bootstrap"])
        if not urls or not all(isinstance(url, str) and is_node_url(url) for url in urls):
            raise ValueError(f"{name}: bootstrap has no URLs")
        files = {key: str(each[key]) for key in SHOWN if each.get(key)}
        found[name] = Context(bootstrap=urls, files=files, insecure=each.get("insecure", False) is True)
    return Contexts(found, value["current"] if value["current"] in found else None)


def save(contexts: Contexts) -> None:
    """Write the contexts for this user's eyes alone, whole or not at all."""
    path = contexts_file()
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    value = {
        "version": VERSION,
        "current": contexts.current,
        "contexts": {name: context.to_json() for name, context in sorted(contexts.by_name.items())},
    }
    part = path.with_suffix(".part")
    part.unlink(missing_ok=True)
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        json.dump(value, file, indent=2)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)
