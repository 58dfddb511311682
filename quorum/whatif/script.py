"""Pure: a script of controller operations, line by line: what each is answered, and which batches it writes.

The lines are those of Kafka's request schemas in snake case; an answer has `error`, `results` or `response`, and `batches`.
Tests: tests/unit/quorum/whatif/test_kafka_scripts.py.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from metadata_log.errors import MetadataError
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.metadata_versions import level_of
from quorum.whatif import acls, brokers, clients, configs, partitions, tokens, topics
from quorum.whatif.cluster import Cluster, Options, Written
from quorum.whatif.kafka_records import batch_as_kafka_json
from quorum.whatif.names import Names
from quorum.whatif.operation import Answer, BadScript, Run, error_of

OPERATIONS: Final[Mapping[str, Callable[[Run, Mapping[str, Any]], Answer]]] = {
    **brokers.OPERATIONS,
    **topics.OPERATIONS,
    **partitions.OPERATIONS,
    **configs.OPERATIONS,
    **clients.OPERATIONS,
    **acls.OPERATIONS,
    **tokens.OPERATIONS,
}


class Script:
    """Runs scripts one after the other; each begins with `Reset`, on `image` or on an empty cluster.

    `options` hold where a script says nothing else.
    """

    def __init__(self, image: MetadataImage | None = None, options: Options | None = None) -> None:
        self._image = image
        self._options = options or Options()
        self._run: Run | None = None

    def answer(self, line: Mapping[str, Any]) -> dict[str, Any]:
        """Carry out one line and return its answer; a line that is no operation changes nothing."""
        name = line.get("op")
        answer: dict[str, Any] = {"op": name if isinstance(name, str) else "?"}
        try:
            return answer | self._answered(answer["op"], line)
        except (BadScript, KeyError, ValueError, TypeError, AttributeError) as error:
            text = str(error) if isinstance(error, BadScript) else f"{type(error).__name__}: {error}"
            return answer | {
                "error": {"error": "BAD_SCRIPT", "code": -2, "message": text},
                "batches": [],
            }

    def _answered(self, name: str, line: Mapping[str, Any]) -> Answer:
        if name == "Reset":
            self._run = None
            return {"error": None}
        if name == "Options":
            if self._run is not None:
                raise BadScript("Options must be the first operation of a script")
            self._run = self._begin(replace(self._options, **_chosen(line)))
            return {"error": None, "batches": [], "next_offset": self._run.cluster.image.end_offset}
        operation = OPERATIONS.get(name)
        if operation is None:
            raise BadScript(f"unknown op {name}")
        if self._run is None:
            self._run = self._begin(self._options)
        run = self._run
        try:
            answer: Answer = {"error": None, **operation(run, line)}
        except MetadataError as error:
            answer = {"error": error_of(error)}
        batches = run.take_batches()
        answer["batches"] = [_shown(batch, run.names) for batch in batches]
        if name == "AdvanceTime":
            answer["times_ms"] = [batch.at_ms for batch in batches]
        return answer

    def _begin(self, options: Options) -> Run:
        names = Names()
        cluster = Cluster(options, self._image)
        if self._image is not None:
            names.learn_all(self._image)
        return Run(cluster, names)


def _shown(batch: Written, names: Names) -> list[dict[str, Any]]:
    shown = batch_as_kafka_json(batch.records, names.word, has_eligible=batch.has_eligible, level=batch.level)
    for record in shown:
        if "token_id" in record:
            record["token_id"] = names.token_word(record["token_id"])
    return shown


def _chosen(line: Mapping[str, Any]) -> dict[str, Any]:
    chosen = {name: line[name] for name in Options.__dataclass_fields__ if line.get(name) is not None}
    if "metadata_version" in chosen:
        level = level_of(str(chosen["metadata_version"]))
        if level is None:
            raise BadScript(f"metadata_version {chosen['metadata_version']}: there is no such level")
        chosen["metadata_version"] = level
    return chosen
