"""Edge: cuts the power at many points of a workload and opens the resulting files."""

import random
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from metadata_log.errors import MetadataError
from tests.powercut.disk_model import DiskModel, Mark, Operation, Tree
from tests.powercut.recorder import Recorder, put_tree
from tests.powercut.workloads import NotKept, Workload

SHARED_MEMORY: Final = Path("/dev/shm")
STORY_OPERATIONS: Final = 12


@dataclass(frozen=True, slots=True)
class Point:
    """After so many operations; variant 0: only what was synced is left, 1: everything, above: something between."""

    operations: int
    variant: int


@dataclass(frozen=True, slots=True)
class Loss:
    point: Point
    error: Exception
    story: str
    """What was done last before the cut."""


@dataclass(slots=True)
class Outcome:
    workload: str
    operations: int = 0
    points: int = 0
    losses: list[Loss] = field(default_factory=list)


def campaign(
    make: Callable[[], Workload],
    *,
    seed: int,
    points: int,
    only: Point | None = None,
    losses_max: int | None = 3,
) -> Outcome:
    """Run a workload once, then cut the power at `points` points of it (or at `only` one).

    Stops after `losses_max` losses; None goes on to the end.
    """
    workload = make()
    home = SHARED_MEMORY if SHARED_MEMORY.is_dir() else None
    with tempfile.TemporaryDirectory(dir=home, prefix="powercut-") as directory:
        root = Path(directory) / "disk"
        root.mkdir()
        recorder = Recorder(root)
        with recorder:
            workload.run(recorder, random.Random(seed))
        recorder.check()
        outcome = Outcome(workload.name, operations=len(recorder.operations))
        chosen = _points(len(recorder.operations), points, seed) if only is None else [only]
        for point, tree, facts in _states(recorder.operations, chosen, seed):
            outcome.points += 1
            error = _error_after(workload, tree, facts, Path(directory) / "after")
            if error is not None:
                outcome.losses.append(Loss(point, error, _story(recorder.operations, point)))
                if losses_max is not None and len(outcome.losses) >= losses_max:
                    break
    return outcome


def _points(operations: int, points: int, seed: int) -> list[Point]:
    """Spread points over the whole run: prefixes with nothing un-synced left, each if it fits, then others by chance."""
    rng = random.Random(seed)
    bare = [Point(number, 0) for number in range(operations + 1)]
    most = 3 * points // 4
    if len(bare) > most:
        bare = rng.sample(bare, most)
    others = [
        Point(rng.randint(0, operations), rng.choice((1, *range(2, 10)))) for _ in range(points - len(bare))
    ]
    return sorted({*bare, *others}, key=lambda point: (point.operations, point.variant))


def _states(
    operations: list[Operation], chosen: list[Point], seed: int
) -> Iterator[tuple[Point, Tree, list[tuple[object, ...]]]]:
    model, facts, done = DiskModel(), [], 0
    for point in chosen:
        for operation in operations[done : point.operations]:
            model.take(operation)
            if isinstance(operation, Mark):
                assert isinstance(operation.fact, tuple)
                facts.append(operation.fact)
        done = point.operations
        match point.variant:
            case 0:
                tree = model.nothing()
            case 1:
                tree = model.everything()
            case variant:
                tree = model.anything(random.Random(f"{seed} {point.operations} {variant}"))
        yield point, tree, facts


def _error_after(
    workload: Workload, tree: Tree, facts: list[tuple[object, ...]], directory: Path
) -> Exception | None:
    directory.mkdir()
    try:
        put_tree(tree, directory)
        workload.check(directory, facts)
    except (NotKept, MetadataError) as error:
        return error
    except Exception as error:  # whatever else a restart dies of is a finding, too
        return error
    finally:
        shutil.rmtree(directory)
    return None


def _story(operations: list[Operation], point: Point) -> str:
    first = max(0, point.operations - STORY_OPERATIONS)
    return "\n".join(
        f"    {number}: {_told(operation)}"
        for number, operation in enumerate(operations[first : point.operations], start=first + 1)
    )


def _told(operation: Operation) -> str:
    return repr(operation)[:160]
