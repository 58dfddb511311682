"""Pure: the operations of scripts on quotas of clients and credentials of users.

Tests: tests/unit/quorum/whatif/test_kafka_scripts.py.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from metadata_log.image.quotas import in_order
from metadata_log.records.quotas import QuotaEntity
from quorum.decide.quotas import AlterClientQuotas, EntityChange, QuotaChange, QuotasAltered
from quorum.decide.users import AlterUserScramCredentials, ScramDeletion, ScramUpsertion, UsersAltered
from quorum.whatif.operation import Answer, Line, Run, or_default, result


def alter_quotas(run: Run, line: Line) -> Answer:
    command = AlterClientQuotas(
        entries=tuple(map(_entry, line["entries"])), validate_only=bool(line.get("validate_only"))
    )
    outcome = run.decide(command)
    assert isinstance(outcome, QuotasAltered)
    by_entity = {each.entity: each for each in outcome.results}
    of_entries = [by_entity[in_order(entry.entity)] for entry in command.entries]
    return {"results": [result(each.error, each.message) for each in of_entries]}


def _entry(entry: Line) -> EntityChange:
    return EntityChange(
        tuple(QuotaEntity(part["entity_type"], part.get("entity_name")) for part in entry["entity"]),
        tuple(
            QuotaChange(change["key"], None if change.get("remove") else float(change["value"]))
            for change in entry["ops"]
        ),
    )


def alter_credentials(run: Run, line: Line) -> Answer:
    command = AlterUserScramCredentials(
        deletions=tuple(
            ScramDeletion(each["name"], each["mechanism"]) for each in line.get("deletions") or ()
        ),
        upsertions=tuple(
            ScramUpsertion(
                each["name"],
                each["mechanism"],
                or_default(each, "iterations", 4_096),
                or_default(each, "salt", "salt").encode(),
                or_default(each, "salted_password", "password").encode(),
            )
            for each in line.get("upsertions") or ()
        ),
    )
    outcome = run.decide(command)
    assert isinstance(outcome, UsersAltered)
    return {"results": [result(each.error, each.message, user=each.user) for each in outcome.results]}


OPERATIONS: Final[Mapping[str, Callable[[Run, Mapping[str, Any]], Answer]]] = {
    "AlterClientQuotas": alter_quotas,
    "AlterUserScramCredentials": alter_credentials,
}
