"""Edge: a method for each table of the catalog: `log.leader_intervals()` is `log.table("leader_intervals")`.
Tests: tests/unit/metadata_log/replay/test_library.py.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cached_property
from types import MethodType
from typing import TYPE_CHECKING, Any, Generic

from metadata_log.replay.catalog import described

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    # `Log` alone means one of any engine.
    Relation = TypeVar("Relation", default=Any)
else:
    from typing import TypeVar

    Relation = TypeVar("Relation")
    """A table as the engine has it: a relation of DuckDB, a DataFrame of Spark."""


class TableMethod:
    """A method without arguments that returns the table of its own name; its docstring is the catalog's description."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name
        self._owner = owner

    def __get__(
        self, tables: "NamedTables[Relation] | None", owner: type | None = None
    ) -> Callable[[], Relation]:
        return self._function if tables is None else MethodType(self._function, tables)

    @cached_property
    def _function(self) -> Callable[..., Any]:
        name = self._name

        def table(self: "NamedTables[Any]") -> Any:
            return self.table(name)

        table.__name__, table.__qualname__ = name, f"{self._owner.__name__}.{name}"
        about, columns = described(name).about, described(name).columns
        table.__doc__ = "\n".join(
            [about, "", *(f"    {column.name} {column.type}: {column.meaning}" for column in columns)]
        )
        return table


class NamedTables(ABC, Generic[Relation]):
    """The tables of the catalog as methods. A line for each, so that editors and type checkers know the names."""

    @abstractmethod
    def table(self, name: str) -> Relation:
        """Return a table of the catalog."""

    records = TableMethod()
    topic_changes = TableMethod()
    partition_changes = TableMethod()
    broker_changes = TableMethod()
    config_changes = TableMethod()
    feature_changes = TableMethod()
    producer_id_changes = TableMethod()
    quorum_changes = TableMethod()
    controller_changes = TableMethod()
    quota_changes = TableMethod()
    acl_changes = TableMethod()
    user_changes = TableMethod()
    token_changes = TableMethod()
    topics = TableMethod()
    partitions = TableMethod()
    brokers = TableMethod()
    configs = TableMethod()
    quorum = TableMethod()
    quotas = TableMethod()
    acls = TableMethod()
    users = TableMethod()
    tokens = TableMethod()
    incidents = TableMethod()
    fencings = TableMethod()
    broker_state_intervals = TableMethod()
    broker_availability = TableMethod()
    controller_takeovers = TableMethod()
    voters_over_time = TableMethod()
    leader_intervals = TableMethod()
    leaderless_spells = TableMethod()
    under_min_isr_spells = TableMethod()
    under_replicated_spells = TableMethod()
    not_preferred_spells = TableMethod()
    isr_events = TableMethod()
    unavailability = TableMethod()
    elections = TableMethod()
    leader_moves = TableMethod()
    topic_churn = TableMethod()
    churn = TableMethod()
    leadership_balance = TableMethod()
    reassignments = TableMethod()
    repeated_registrations = TableMethod()
    topic_events = TableMethod()
    cluster_events = TableMethod()
    actions = TableMethod()
    log_health = TableMethod()
    opaque_records = TableMethod()

    def history(self, key: str | None = None) -> Relation:
        """Return what happened to each entity, in words.

        With `key`, one entity: topic:NAME (its partitions included), NAME:N, broker:ID, controller:ID, or cluster.

        Raises:
            InvalidRequest: the key is none of these.
        """
        if key is None:
            return self.table("history")
        return self._history_of(key)

    @abstractmethod
    def _history_of(self, key: str) -> Relation:
        """Return the history of one entity."""
