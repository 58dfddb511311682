"""Edge: the arithmetic of benchmarks and the shape of their answers; the group here is a model in memory."""

import asyncio
from dataclasses import dataclass, field

import pytest

from ops.bench import measure
from ops.bench.measure import BenchmarkFailed, NotAcknowledged, Run, figures, percentile, report


@dataclass
class Group:
    """Three members, one of which leads; the dead one's place is taken at once, or never."""

    endpoints: tuple[str, ...] = ("a", "b", "c")
    tls: None = None
    version: str = "model"
    takes_over: bool = True
    leading: str = "a"
    dead: set[str] = field(default_factory=set)
    written: list[str] = field(default_factory=list)

    async def leader(self) -> str:
        return self.leading

    async def write(self, endpoint: str) -> None:
        await asyncio.sleep(0)
        if endpoint in self.dead or endpoint != self.leading:
            raise NotAcknowledged("not the leader")
        self.written.append(endpoint)

    def one_write(self, endpoint: str) -> bytes:
        return endpoint.encode()

    def pids(self) -> dict[str, int]:
        return {}

    async def kill(self, endpoint: str) -> None:
        self.dead.add(endpoint)
        if self.takes_over:
            self.leading = next(each for each in self.endpoints if each not in self.dead)

    async def freeze(self, endpoint: str) -> None:
        await self.kill(endpoint)

    async def thaw(self, endpoint: str) -> None:
        await self.restart(endpoint)

    async def restart(self, endpoint: str) -> None:
        self.dead.remove(endpoint)


def test_percentiles_are_measured_values() -> None:
    hundred = [float(value) for value in range(100, 0, -1)]
    assert percentile(hundred, 50) == 51
    assert percentile(hundred, 99) == 100
    assert percentile([7.0], 99) == 7
    assert figures([1.0, 2.0, 3.0], prefix="loaded_") == {"loaded_p50": 2, "loaded_p99": 3, "loaded_max": 3}


def test_sequential_writes_go_to_the_leader_and_the_warm_up_is_not_counted() -> None:
    group = Group()
    run = asyncio.run(measure.sequential(group, writes=5, warm_up=2))
    assert len(run.latencies_ms) == 5
    assert run.failed == 0
    assert group.written == ["a"] * 7


def test_a_load_counts_every_write() -> None:
    group = Group()
    run = asyncio.run(measure.load(group, clients=3, seconds=0.02))
    assert len(run.latencies_ms) == len(group.written) >= 3
    assert run.per_second > 0


def test_a_write_that_fails_is_counted_and_its_client_finds_the_new_leader() -> None:
    async def scenario() -> tuple[Run, Group]:
        group = Group()

        async def depose() -> None:
            while len(group.written) < 10:
                await asyncio.sleep(0)
            group.leading = "b"

        deposing = asyncio.ensure_future(depose())
        run = await measure.load(group, clients=3, seconds=0.05)
        await deposing
        return run, group

    run, group = asyncio.run(scenario())
    assert 1 <= run.failed <= 3
    assert len(run.latencies_ms) == len(group.written)
    assert group.written[-1] == "b"


def test_no_figures_are_made_of_nothing() -> None:
    with pytest.raises(BenchmarkFailed, match="not one write"):
        figures([])


def test_the_gap_ends_with_the_first_write_after_the_kill_and_the_group_is_whole_again() -> None:
    group = Group()
    assert asyncio.run(measure.write_gap_ms(group)) > 0
    assert group.written
    assert set(group.written) == {"b"}, "before the kill only survivors are written to, and they do not lead"
    assert group.dead == set()


def test_a_group_that_finds_no_leader_fails_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "FAILOVER_TIMEOUT_S", 0.05)
    with pytest.raises(BenchmarkFailed, match="after the leader was gone"):
        asyncio.run(measure.write_gap_ms(Group(takes_over=False)))


def test_an_answer_has_the_documented_shape() -> None:
    ours = {"version": "1", "unit": "ms", "p50": 2.0, "p99": 3.0, "max": 9.0, "gaps": [2.0, 9.0]}
    etcd = {"version": "2", "unit": "ms", "p50": 4.0, "p99": 3.0, "max": 4.5, "gaps": [4.0, 4.5]}
    floors = {"fdatasync_p50_us": 80.0, "loopback_rtt_p50_us": 46.0}
    answer = report("failover", params={"kills": 2}, ours=ours, peers={"etcd": etcd}, rounds=2, probes=floors)
    assert answer == {
        "name": "failover",
        "params": {"kills": 2},
        "ours": ours,
        "peers": {"etcd": etcd},
        "ratios": {"etcd": {"p50": 0.5, "p99": 1.0, "max": 2.0}},
        "rounds": 2,
        "probes": floors,
    }
