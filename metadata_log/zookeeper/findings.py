"""Pure: what a tree of ZooKeeper says beside records: what is left out and why, what is unknown, and what is damaged.

Tests: tests/unit/metadata_log/zookeeper/test_imported.py.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

from metadata_log.zookeeper.layout import Node
from metadata_log.zookeeper.values import DamagedNode


class Noted(NamedTuple):
    """A node, and what is to be said of it."""

    path: str
    why: str


@dataclass(slots=True)
class Findings:
    """What was noted on the way, in the order of the tree."""

    left_out: list[Noted] = field(default_factory=list)
    """What a known node says and no record can."""
    unknown: list[str] = field(default_factory=list)
    """Nodes that no Kafka up to 3.9 makes; what lies below them was not looked at."""
    damaged: list[Noted] = field(default_factory=list)
    """Nodes whose data cannot be, or contradicts that of others."""

    @contextmanager
    def reading(self, node: Node) -> Iterator[None]:
        """Note a node as damaged if the block cannot read it."""
        try:
            yield
        except DamagedNode as error:
            self.damaged.append(Noted(node.path, str(error)))
