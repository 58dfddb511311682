"""Pure: what a subject declares of a command that it decides. Tests: tests/unit/quorum/decide/test_registry.py."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from metadata_log.image.metadata_image import MetadataImage
from metadata_log.records.registry import Record
from metadata_log.sliced import Sliced
from metadata_log.wire.commands import Command
from quorum.decide.access import Access
from quorum.decide.context import DecideContext
from quorum.decide.decision import Decision, Outcome


class Decides(NamedTuple):
    """`operation` is the name in envelopes, in scripts and in Kafka; `outcome` the type of what a decision answers.

    `access` is what the caller needs.
    """

    command: type[Command]
    operation: str
    outcome: type[Outcome]
    access: Access
    decide: Callable[[DecideContext, Any], Decision | Sliced[Decision]]
    """Sliced where a request may name so much that the decision is to rest."""
    kept: "Kept | None" = None
    """How the outcome is kept for repetitions; None: whole."""


class Kept(NamedTuple):
    """A form of an outcome without what its batch says anyway.

    `restore` makes the outcome from that form, the records of the batch (None where the log holds them no longer), and the
    present image.
    """

    kind: type[Outcome]
    keep: Callable[[Any], Outcome]
    restore: Callable[[Any, Sequence[Record] | None, MetadataImage], Outcome]
