"""Edge: the benchmarks' peer is a real three-node etcd that survives what is done to it."""

from pathlib import Path

import pytest

from ops.bench.etcd_peer import etcd_peer
from ops.bench.measure import NotAcknowledged, load, sequential, write_gap_ms
from ops.bench.probes import probes
from ops.waits import until_async


@pytest.mark.slow
async def test_etcd_is_written_to_killed_and_whole_again(tmp_path: Path) -> None:
    # Timers at which a busy machine does not move the leadership between two lines.
    async with etcd_peer(tmp_path, heartbeat_ms=100, election_timeout_ms=1_000) as etcd:
        assert etcd.version.startswith("3.")
        done = await sequential(etcd, writes=20, warm_up=2)
        assert len(done.latencies_ms) + done.failed == 20 and done.latencies_ms
        assert (await load(etcd, clients=8, seconds=1.0)).latencies_ms
        killed = await etcd.leader()
        assert await write_gap_ms(etcd) > 0
        await etcd.wait_until_whole()

        async def written() -> bool:
            await etcd.write(killed)
            return True

        await until_async(
            "the one that was killed takes a write",
            written,
            deadline_s=60,
            poll_s=0.1,
            failure=AssertionError,
        )
        await etcd.kill(killed)
        with pytest.raises(NotAcknowledged):
            await etcd.write(killed)
    assert all(
        member.process is not None and member.process.returncode is not None for member in etcd.members
    )


@pytest.mark.slow
def test_the_probes_measure_something(tmp_path: Path) -> None:
    floors = probes(tmp_path)
    assert set(floors) == {"fdatasync_p50_us", "loopback_rtt_p50_us"}
    assert all(value > 0 for value in floors.values())
    assert list(tmp_path.iterdir()) == []
