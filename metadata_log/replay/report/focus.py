"""Edge: which rows of the report's tables are about the topic or the broker that alone is reported of.
Tests: tests/unit/metadata_log/replay/test_report.py.
"""

from operator import itemgetter
from typing import Any, NamedTuple

from metadata_log.records.configs import CLUSTER_DEFAULT
from metadata_log.replay.subjects.registry import CHANGES


class Focus(NamedTuple):
    """What alone is reported of: one topic, one broker, or both; None: all. Controllers are always reported of."""

    topic: str | None
    broker: int | None

    def of(self, table: str, found: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the rows of a table that belong here; those of a family, whose files are read in any order, by offset."""
        mine = [row for row in found if self._has_broker(table, row) and self._has_topic(table, row)]
        return sorted(mine, key=itemgetter("log_offset")) if table in CHANGES else mine

    def _has_broker(self, table: str, row: dict[str, Any]) -> bool:
        if self.broker is None:
            return True
        match table:
            case "incidents":
                return bool(row["trigger"] != "broker" or row["node_id"] == self.broker)
            case "leader_moves":
                return self.broker in {row["prev_leader"], row["leader"]}
            case "reassignments":
                return self.broker in {*(row["from_replicas"] or ()), *(row["to_replicas"] or ())}
            case "config_changes":
                return row["resource_type"] != "BROKER" or row["resource_name"] in {
                    CLUSTER_DEFAULT,
                    str(self.broker),
                }
            case _:
                return row.get("broker_id") in {None, self.broker}

    def _has_topic(self, table: str, row: dict[str, Any]) -> bool:
        if self.topic is None:
            return True
        if table == "config_changes":
            return bool(row["resource_type"] != "TOPIC" or row["resource_name"] == self.topic)
        return row.get("topic_name") in {None, self.topic}

    def lines(self) -> list[str]:
        """Return what the head of the report says of it."""
        others = "counts by topic, by partition and by who asked are those of all brokers"
        return [
            *([] if self.topic is None else [f"- Of topics and their partitions, only `{self.topic}`"]),
            *([] if self.broker is None else [f"- Of brokers, only {self.broker}; {others}"]),
        ]
