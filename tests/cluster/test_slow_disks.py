"""Elections of real controllers whose syncs are slow: each ends, whatever ended the leadership before."""

from pathlib import Path

import pytest

from ops.bench.slow_disks import STRIKES, on_slow_disks, without_leader_ms
from ops.waits import until_async

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(("sync_ms", "slow"), [(400, "all"), (1_500, "two")])
async def test_a_leader_is_found_on_slow_disks(tmp_path: Path, sync_ms: int, slow: str) -> None:
    """Goal: a quorum elects wherever it can lead. Method: kill -9, hand-over and a change of voters, one after the other.

    `metaquorum bench slow-disks` has the times; tests/unit/quorum/raft/test_slow_disks.py bounds them on simulated time.
    """

    async def written() -> bool:
        await disks.peer.write(await disks.peer.leader())
        return True

    async with on_slow_disks(tmp_path) as disks:
        for strike in STRIKES:
            await without_leader_ms(disks, strike=strike, slow=slow, sync_ms=sync_ms)
            await until_async(
                f"a write after {strike}", written, deadline_s=60, poll_s=0.1, failure=AssertionError
            )
