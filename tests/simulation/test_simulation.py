"""Raft's properties, durability, exactly-once and linearizable reads, in simulated weather: see `world`."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from metadata_log.ids import NodeId
from metadata_log.limits import RAFT_STRANGER_TIMEOUTS
from quorum.raft.follower_log import FollowerLog
from quorum.raft.outbox import Outbox
from quorum.raft.raft_settings import RaftSettings
from tests.simulation.faults.profiles import PROFILES
from tests.simulation.world.node import STOP_SECONDS_MAX
from tests.simulation.world.world import LAST_WRITE_SECONDS, SETTLE_SECONDS, World


def _replay(seed: int, seconds: float, profile: str, voters: int) -> str:
    return (
        f"python -m tests.simulation --raft-only --seeds {seed} --seconds {seconds} --profile {profile} "
        f"--controllers {voters}"
    )


def _check(seed: int, seconds: float, profile: str, voters: int = 3) -> World:
    world = World(seed=seed, profile=PROFILES[profile], voters=voters)
    violations = world.run(seconds)
    assert not violations, f"{violations[0]}\n{_replay(seed, seconds, profile, voters)}"
    return world


@pytest.mark.parametrize("profile", ["calm", "fifo", "wild"])
def test_a_short_run(profile: str) -> None:
    world = _check(7, 4.0, profile)
    assert world.writes_acknowledged > 50
    assert world.reads_answered > 20


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 104))
@pytest.mark.parametrize("profile", ["fifo", "wild", "nasty"])
def test_rough_weather(seed: int, profile: str) -> None:
    """B72"""
    _check(seed, 6.0, profile)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seed", "profile", "voters"),
    [(1, "nasty", 5), (2, "storm", 5), (3, "wild", 5), (4, "wild", 1), (5, "nasty", 1), (6, "calm", 3)],
)
def test_other_quorums(seed: int, profile: str, voters: int) -> None:
    """B72"""
    _check(seed, 8.0, profile, voters)


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "voters"), [(400, 3), (401, 3), (402, 3), (403, 1), (404, 5)])
def test_voters_come_and_go_and_disks_are_lost(seed: int, voters: int) -> None:
    world = World(seed=seed, profile=PROFILES["members"], voters=voters, observers=2)
    violations = world.run(15.0)
    assert not violations, f"{violations[0]}\n{_replay(seed, 15.0, 'members', voters)} --observers 2"
    assert world.faults["change of voters"] > 3


@pytest.mark.slow
def test_the_same_seed_is_the_same_run() -> None:
    one, two, other = (_check(seed, 4.0, "wild") for seed in (11, 11, 12))
    assert one.network.trace == two.network.trace
    assert one.checks.history == two.checks.history
    assert one.network.trace != other.network.trace


async def _dies() -> None:
    raise ValueError("nobody asked")


async def _dies_in_a_cycle() -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(_dies())


@pytest.mark.parametrize("work", [_dies, _dies_in_a_cycle])
def test_what_asyncio_would_only_log_is_a_violation(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    class Neglected(World):
        def more_weather(self) -> list[tuple[float | None, Callable[[], None]]]:
            self.loop.create_task(work())
            return []

    (violation,) = Neglected(seed=1, profile=PROFILES["calm"]).run(1.0)
    assert "asyncio: Task exception was never retrieved:" in violation
    assert "nobody asked" in violation


def test_a_callback_that_fails_is_a_violation() -> None:
    world = World(seed=1, profile=PROFILES["calm"])
    world.loop.call_later(0.5, {}.__getitem__, "nothing")
    assert world.run(1.0) == ["0.500 s: KeyError: 'nothing'"]


@pytest.mark.slow
def test_a_node_that_takes_too_long_to_stop_is_killed_and_starts_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class DiskHangs(World):
        def more_weather(self) -> list[tuple[float | None, Callable[[], None]]]:
            node = self.nodes[NodeId(1)]
            monkeypatch.setattr(node, "_sync_seconds", lambda: 60.0 if self.is_rough else 0.001)
            self.loop.call_later(1.0, self.spawn, node.stop)
            return []

    assert not DiskHangs(seed=1, profile=PROFILES["calm"]).run(STOP_SECONDS_MAX + 4.0)


@pytest.mark.parametrize(
    ("rules", "rule", "profile"),
    [(Outbox, "split_by_sync", "calm"), (FollowerLog, "drop_held_entries", "wild")],
)
def test_the_simulation_finds_a_missing_rule(
    monkeypatch: pytest.MonkeyPatch, rules: type[object], rule: str, profile: str
) -> None:
    """The checks have teeth: without one of the guard's rules some seed fails."""
    monkeypatch.setattr(rules, rule, lambda _rules, message: (message, None))
    for seed in range(20):
        if World(seed=seed, profile=PROFILES[profile]).run(8.0):
            return
    raise AssertionError(f"20 runs without {rule}, and nothing was violated")


def _varied(*variations: tuple[float, int], seconds: float = 4.0) -> tuple[World, dict[float, int]]:
    """Run with variations; return the world, and its trace at some times."""
    traces: dict[float, int] = {}

    class Looks(World):
        def more_weather(self) -> list[tuple[float | None, Callable[[], None]]]:
            for at in (1.0, 1.9, 3.9):
                self.loop.call_later(at, lambda at=at: traces.setdefault(at, self.network.trace))
            return []

    world = Looks(seed=21, profile=PROFILES["wild"])
    world.variations = variations
    assert not world.run(seconds)
    return world, traces


@pytest.mark.slow
def test_a_varied_run_is_the_same_one_until_it_is_varied() -> None:
    (plain, before), (varied, after), (again, _) = _varied(), _varied((2.0, 5)), _varied((2.0, 5))
    assert (before[1.0], before[1.9]) == (after[1.0], after[1.9])
    assert before[3.9] != after[3.9]
    assert varied.network.trace == again.network.trace != plain.network.trace


def test_the_calm_outlasts_the_silence_after_which_strangers_are_believed() -> None:
    """A node that knows none of the voters believes them, elects with them, and is sent a frame within the calm."""
    timeout_s = RaftSettings().election_timeout_max_ms / 1000
    slowest_clock = 0.99
    silence = RAFT_STRANGER_TIMEOUTS * timeout_s / slowest_clock
    assert silence + 2 * timeout_s < SETTLE_SECONDS - LAST_WRITE_SECONDS
