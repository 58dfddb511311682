"""Pure: what the operations of a script share: names and relative numbers, and how results and errors are shown.
Tests: tests/unit/quorum/whatif/test_kafka_scripts.py.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

from metadata_log import errors
from metadata_log.errors import MetadataError
from metadata_log.ids import BrokerId, TopicId
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.wire.commands import Command
from quorum.decide.decision import Outcome
from quorum.whatif.cluster import Cluster, Written
from quorum.whatif.names import Names

Line: TypeAlias = Mapping[str, Any]
Answer: TypeAlias = dict[str, Any]

CODES: Final[Mapping[str, int]] = {
    error.error: error.code
    for error in vars(errors).values()
    if isinstance(error, type) and issubclass(error, MetadataError) and hasattr(error, "code")
}


class BadScript(Exception):
    """A line is no operation."""


class Run:
    """One script under way."""

    def __init__(self, cluster: Cluster, names: Names) -> None:
        self.cluster = cluster
        self.names = names
        self.began_with = cluster.image.features
        self._written: list[Written] = []

    @property
    def image(self) -> MetadataImage:
        return self.cluster.image

    def decide(self, command: Command, *, requester: str = "") -> Outcome:
        """Decide a command of a principal and return its outcome; raises its refusal."""
        outcome = self.cluster.decide(command, requester=requester).result()
        self._learn()
        return outcome

    def take_batches(self) -> list[Written]:
        """Return what was written since the last call; its names are learned."""
        self._learn()
        written, self._written = self._written, []
        return written

    def _learn(self) -> None:
        written = self.cluster.take_written()
        for batch in written:
            for record in batch.records:
                self.names.learn(record)
        self._written += written

    # --- relative numbers

    def epoch_of(self, broker_id: int) -> int:
        broker = self.image.brokers.get(BrokerId(broker_id))
        return -1 if broker is None else broker.broker_epoch

    def broker_epoch(self, value: Any, broker_id: int, *, missing: int | None = None) -> int:
        """Return a broker epoch: left out, a number, or relative to the registered one."""
        current = self.epoch_of(broker_id)
        if value == "previous":
            return self.names.previous_epoch(BrokerId(broker_id))
        if value is None and missing is not None:
            return missing
        return relative(value, current)

    def offset(self, value: Any, *, registered_at: int) -> int:
        """Return the offset of a record, inclusive."""
        end = self.image.end_offset - 1
        if value is None:
            return end
        if isinstance(value, int):
            return value
        for word, base in (("registration", registered_at), ("end", end)):
            if value.startswith(word):
                return base + int(value.removeprefix(word) or 0)
        raise BadScript(f"not an offset: {value!r}")

    def topic_ref(self, topic: Line) -> TopicId:
        """Return the id of a topic that a line names by name or id; one that no topic has where there is none."""
        if topic.get("topic_id") is not None:
            return TopicId(self.names.uuid(topic["topic_id"]))
        return self.names.topic_id(self.image, topic["name"])


def ref_text(topic: Line) -> str:
    text: str = topic["name"] if topic.get("topic_id") is None else topic["topic_id"]
    return text


def relative(value: Any, current: int) -> int:
    """Return a number: left out or "current", "+n" or "-n" from the current value, or itself."""
    if value is None or value == "current":
        return current
    if isinstance(value, str):
        if value[:1] not in ("+", "-"):
            raise BadScript(f"not a number: {value!r}")
        return current + int(value)
    return int(value)


def or_default(line: Line, name: str, default: Any) -> Any:
    """Return a field; left out or null, its default."""
    value = line.get(name)
    return default if value is None else value


def error_of(error: MetadataError) -> dict[str, Any]:
    return {"error": error.error, "code": error.code, "message": error.message}


def result(error: str | None, message: str | None = None, **fields: Any) -> dict[str, Any]:
    """Return the result of one item; its error, if it has one, comes first."""
    if error is None:
        return {"error": None, **fields}
    return {"error": error, "code": CODES[error], "message": message, **fields}


def number(value: Any) -> int:
    """Return a value that must be a whole number."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise BadScript(f"not a whole number: {value!r}")
    return value


def replicas(values: Sequence[int]) -> tuple[BrokerId, ...]:
    return tuple(BrokerId(number(value)) for value in values)
