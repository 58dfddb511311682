"""Edge: what a path holds that is neither an export nor a log, and what to name instead.
Tests: tests/unit/ops/verbs/test_replay.py.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from metadata_log.errors import InvalidRequest
from metadata_log.replay.kinds import MANIFEST, READERS, is_kafka_log, kind_of, segments_in

NAMED_MAX: Final = 5
"""At most this many directories are named; the others are counted."""


def no_log_at(path: Path) -> InvalidRequest:
    """Return the refusal of a path without a log: it says what is there, one level below included, and what to name."""
    if not path.exists():
        return InvalidRequest(f"{path} does not exist, so it holds no log and no export: {_ANY}")
    if not path.is_dir():
        kind = kind_of(path)
        what = "a file, not a directory" if kind is None else kind.value
        cure = "" if kind is None else f"; {READERS[kind].format(path=path, parent=path.parent)}"
        return InvalidRequest(f"{path} is {what}: name the directory of the log, {path.parent}{cure}")
    if (path / MANIFEST).exists():
        return InvalidRequest(
            f"{path} is an export already, and not a log to be exported: read it, or copy it"
        )
    if (path / "meta.json").exists():
        return InvalidRequest(
            f"{path} is the data directory of a node, and its log holds no segment: start the node, or name another one"
        )
    below = sorted(each for each in path.iterdir() if each.is_dir())
    exports = [each for each in below if (each / MANIFEST).exists()]
    kafka = [each for each in below if is_kafka_log(each)]
    nodes = [each for each in below if each not in kafka and segments_in(each)]
    # A controller's log is whole; a broker may lag behind.
    nodes.sort(key=lambda each: (not each.name.startswith("controller"), each))
    for found, what in (
        (nodes, "logs of metaquorum, such as the data directories of nodes"),
        (kafka, "metadata logs of Apache Kafka"),
        (exports, "exports"),
    ):
        if found:
            return InvalidRequest(
                f"{path} holds no log and no export itself, but one level below {what}: name one: {_listed(found)}"
            )
    is_empty = next(path.iterdir(), None) is None
    return InvalidRequest(f"{path} {'is empty: it ' if is_empty else ''}holds no log and no export: {_ANY}")


_ANY: Final = (
    "name an export (`metaquorum log export --to DIR` writes one), a data directory, a folder of segments, "
    "or Kafka's metadata.log.dir"
)


def check_format(path: Path, form: str | None) -> None:
    """Check that a directory holds no log of the other kind than the format that was named.

    Raises:
        InvalidRequest: it does.
    """
    if form == "metaquorum" and is_kafka_log(path):
        raise InvalidRequest(
            f"{path} holds the metadata log of an Apache Kafka cluster: name the format kafka, or leave the format out"
        )
    if form == "kafka" and not is_kafka_log(path):
        if segments_in(path):
            raise InvalidRequest(
                f"{path} holds a log of metaquorum: name the format metaquorum, or leave the format out"
            )
        raise no_log_at(path)


def _listed(found: Sequence[Path]) -> str:
    more = len(found) - NAMED_MAX
    return ", ".join(map(str, found[:NAMED_MAX])) + (f" and {more} more" if more > 0 else "")
