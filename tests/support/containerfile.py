"""Edge: a Containerfile, read as far as ours goes: its instructions, and what is wrong with them."""

import json
import re
from collections.abc import Iterator, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Final, NamedTuple

JSON_FORM: Final = ("ENTRYPOINT", "CMD")


class Instruction(NamedTuple):
    keyword: str
    rest: str

    @property
    def words(self) -> list[str]:
        return self.rest.split()


def stages(text: str) -> list[list[Instruction]]:
    """Return the instructions of each stage, which begins with its FROM; comments are dropped, continued lines joined."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    found: list[list[Instruction]] = []
    for line in filter(None, map(str.strip, joined.splitlines())):
        keyword, _, rest = line.partition(" ")
        if keyword == "FROM":
            found.append([])
        found[-1].append(Instruction(keyword, rest.strip()))
    return found


def copied(stage: Sequence[Instruction]) -> list[str]:
    """Return what a stage copies from the context of the build."""
    return [
        word
        for each in stage
        if each.keyword == "COPY" and not each.rest.startswith("--from=")
        for word in each.words[:-1]
    ]


def ignored(path: str, ignore: str) -> bool:
    """Answer whether an ignore file keeps a file from the build; its last line that fits decides."""
    verdict = False
    for line in filter(None, (line.partition("#")[0].strip() for line in ignore.splitlines())):
        pattern = line.removeprefix("!")
        parents = [path, *(str(parent) for parent in Path(path).parents)]
        if any(fnmatch(each, pattern) or fnmatch(f"x/{each}", pattern) for each in parents):
            verdict = not line.startswith("!")
    return verdict


def faults(text: str) -> Iterator[str]:
    """Yield what a reviewer would object to."""
    built = stages(text)
    final = built[-1]
    for stage in built:
        image = stage[0].words[0]
        if ":" not in image.rpartition("/")[2] or image.endswith(":latest"):
            yield f"{image}: no version"
    users = [each.rest for each in final if each.keyword == "USER"]
    if not users or users[-1].partition(":")[0] in ("root", "0") or not users[-1][:1].isdigit():
        yield "it does not run as a user with a number other than 0"
    for keyword in ("HEALTHCHECK", "STOPSIGNAL", "ENTRYPOINT", "VOLUME"):
        if keyword not in {each.keyword for each in final}:
            yield f"no {keyword}"
    for each in (each for stage in built for each in stage):
        if each.keyword == "ADD":
            yield "ADD fetches and unpacks: COPY does neither"
        if each.keyword == "WORKDIR" and not each.rest.startswith("/"):
            yield f"WORKDIR {each.rest} depends on the one before"
        if each.keyword in JSON_FORM and not _is_list(each.rest):
            yield f"{each.keyword} goes through a shell, which takes its signals"
        if each.keyword == "HEALTHCHECK" and not _is_list(each.rest.partition("CMD ")[2]):
            yield "HEALTHCHECK goes through a shell"
        for command in each.rest.split("&&") if each.keyword == "RUN" else ():
            if "pip install" in command and "--no-cache-dir" not in command:
                yield f"a cache stays in the image: {command}"
            if "pip install" in command and "--require-hashes" not in command and "--no-deps" not in command:
                yield f"not by the lock: {command}"
            if re.search(r"\b(?:sudo|curl|wget)\b", command):
                yield f"unpinned, or a right too many: {command}"


def _is_list(text: str) -> bool:
    try:
        return isinstance(json.loads(text), list)
    except ValueError:
        return False
