"""Edge: a request with many items as several commands, and one answer put together.

Kafka's clients and brokers know no bound on items: one request asks for whatever is pending. Items are decided independently
of each other, so no client can tell that those of one request were decided in several commands, one after the other.

Tests: tests/unit/quorum/kafka/test_parts_of_requests.py.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from metadata_log.errors import Fault, MetadataError, NotController
from metadata_log.node.pace import Pace
from metadata_log.sliced import Sliced
from metadata_log.wire.commands import Command
from quorum.controller.callers import Caller, may_ask_later, refusal_of
from quorum.decide.access import Resource
from quorum.kafka.door import KafkaDoor

T = TypeVar("T")
WEIGHT_MAX: Final = 1_000
"""Of one command: so many items, or more where they are light."""
ASKED_BETWEEN_RESTS: Final = 32
"""ACLs are asked about so many items, which takes about a millisecond, before others have a turn."""

NAMED_TWICE: Final = 2
"""A decision refuses what is named so often with one result, and what is named more often with the same one."""


class Part(NamedTuple):
    """Items that were decided together: the results of their command in its order, or why it was refused."""

    items: Sequence[Any]
    outcome: Any


async def decided_in_parts(
    door: KafkaDoor,
    caller: Caller,
    items: Iterable[T],
    command_of: Callable[[Sequence[T]], Command],
    *,
    weight: Callable[[T], int] = lambda _: 1,
    weight_max: int = WEIGHT_MAX,
    name: Callable[[T], Hashable] | None = None,
    alike: Callable[[T], Hashable] | None = None,
    asks: tuple[str, Callable[[T], Resource | None]] | None = None,
) -> list[Part]:
    """Have items decided, in as many commands as they need.

    Items may be made as they are taken: those of one command in a turn of the loop. One that weighs more than `weight_max`
    has a command of its own. Items of the same `name` are decided together, as the decision refuses what is named twice.
    Of those that are `alike`, by default of one name, the first two are decided, for all of them.
    `asks` has the operation and the resource of an item: what ACLs refuse of them is refused item by item, as in Kafka.

    Raises:
        NotController: this one is not active, or no longer; some commands may have been carried out.
        MetadataError: the first command failed. A failure of a later one is the outcome of its items and of those after it.
    """
    if not door.controller.is_active:
        raise door.controller.not_controller()
    if asks is not None and may_ask_later(caller, asks[0]):
        refused, items = await Pace(door.now_ms).made_by(_refused(door, caller, items, *asks))
        # What the command itself needs is asked for all of its items in one turn.
        light, weight = weight, lambda item: max(light(item), -(-weight_max // WEIGHT_MAX))
    else:
        refused = []
    parts: list[Part] = []
    failure: MetadataError | None = None
    # One item, as most requests of clients have, needs no packing.
    commands: Iterable[Sequence[T]] = [items] if isinstance(items, list) and len(items) == 1 else ()
    for some in commands or _packed(_by_name(items, name, alike), weight, weight_max):
        if failure is None:
            try:
                written = await door.controller.submit(command_of(some), caller)
            except (Fault, NotController):
                raise  # the client repeats the whole request at the next controller
            except MetadataError as error:
                if not parts and not refused:
                    raise
                failure = error
            else:
                parts.append(Part(some, written.outcome))
                continue
        parts.append(Part(some, failure))
    return [*refused, *parts]


def _refused(
    door: KafkaDoor,
    caller: Caller,
    items: Iterable[T],
    operation: str,
    resource_of: Callable[[T], Resource | None],
) -> Sliced[tuple[list[Part], list[T]]]:
    """Return the items that ACLs refuse a caller, each with its error, and those that they allow."""
    image = door.controller.committed
    refused, allowed = list[Part](), list[T]()
    for asked, item in enumerate(items, 1):
        if asked % ASKED_BETWEEN_RESTS == 0:
            yield
        resource = resource_of(item)
        refusal = None if resource is None else refusal_of(caller, operation, resource, image)
        if refusal is None:
            allowed.append(item)
        else:
            refused.append(Part((item,), refusal))
    if refused:
        door.access.refusals.note(
            refused[0].outcome,
            door="kafka",
            principal=caller.principal.name,
            address=caller.address,
            asked=f"{operation.partition('.')[0]} ({len(refused):,} refused)",
            trace_id=caller.trace_id,
        )
    return refused, allowed


def _by_name(
    items: Iterable[T], name: Callable[[T], Hashable] | None, alike: Callable[[T], Hashable] | None
) -> Iterable[Sequence[T]]:
    """Return the items in groups of one name, in order of their first, without the third and further of those alike."""
    if name is None:
        return ((item,) for item in items)
    by_name: dict[Hashable, list[T]] = {}
    times: dict[Hashable, int] = {}
    for item in items:
        named = name(item)
        key = named if alike is None else alike(item)
        times[key] = count = times.get(key, 0) + 1
        if count <= NAMED_TWICE:
            by_name.setdefault(named, []).append(item)
    return by_name.values()


def _packed(
    groups: Iterable[Sequence[T]], weight: Callable[[T], int], weight_max: int
) -> Iterator[Sequence[T]]:
    """Yield the items in order, as many groups at a time as do not weigh more than `weight_max`, one at least."""
    some: list[T] = []
    total = 0
    for group in groups:
        weighs = sum(map(weight, group))
        if some and total + weighs > weight_max:
            yield some
            some, total = [], 0
        some += group
        total += weighs
    if some:
        yield some
