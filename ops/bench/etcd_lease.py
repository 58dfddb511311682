"""Edge: what the loss of a broker is to etcd: the keys of a lease are deleted, and a watch at each member learns of it.
Tests: tests/cluster/test_bench.py.
"""

import asyncio
import time
from typing import Final

import aiohttp

from ops.bench.etcd_grpc import PARTITION_BYTES
from ops.bench.etcd_peer import TXN_OPS_MAX, EtcdPeer, as_text
from ops.bench.measure import BenchmarkFailed, NotAcknowledged

_TTL_S: Final = 3_600
"""Until then the lease is revoked: our figure begins with the fencing, too, and not with the broker's last word."""
_PREFIX: Final = b"owned/"
_BEHIND_PREFIX: Final = b"owned0"
_DELETED: Final = b'"type":"DELETE"'
_CREATED: Final = b'"created":true'
_TIMEOUT: Final = aiohttp.ClientTimeout(total=180.0)


async def lease_loss_ms(etcd: EtcdPeer, keys: int) -> float:
    """Return the time from revoking a lease of so many keys until a watch at each of the members has every deletion."""
    leader = await etcd.leader()
    lease = (await etcd.call(leader, "/v3/lease/grant", {"TTL": _TTL_S}))["ID"]
    for first in range(0, keys, TXN_OPS_MAX):
        await etcd.call(leader, "/v3/kv/txn", _puts(lease, range(first, min(first + TXN_OPS_MAX, keys))))
    watches = [_Watch(etcd, endpoint, keys) for endpoint in etcd.endpoints]
    try:
        async with asyncio.TaskGroup() as group:
            following = [group.create_task(watch.follow()) for watch in watches]
            for watch in watches:
                await watch.created.wait()
            began = time.perf_counter()
            await _revoke(etcd, leader, lease)
    except* (aiohttp.ClientError, TimeoutError, NotAcknowledged) as failures:
        raise BenchmarkFailed(
            f"the deletions did not reach all watches: {failures.exceptions[0]!r}"
        ) from None
    return round(1000 * (max(task.result() for task in following) - began), 1)


def _puts(lease: str, numbers: range) -> dict[str, object]:
    value = as_text(bytes(PARTITION_BYTES))
    return {
        "success": [
            {"request_put": {"key": as_text(_PREFIX + b"%d" % number), "value": value, "lease": lease}}
            for number in numbers
        ]
    }


async def _revoke(etcd: EtcdPeer, leader: str, lease: str) -> None:
    """Revoke a lease, which may take longer than a write."""
    async with etcd.http.post(f"{leader}/v3/lease/revoke", json={"ID": lease}, timeout=_TIMEOUT) as answer:
        if answer.status != 200:
            raise BenchmarkFailed(f"the lease was not revoked: {answer.status} {await answer.text()}")


class _Watch:
    """A watch of all keys of the lease at one member."""

    def __init__(self, etcd: EtcdPeer, endpoint: str, keys: int) -> None:
        self.created = asyncio.Event()
        self._etcd = etcd
        self._endpoint = endpoint
        self._keys = keys

    async def follow(self) -> float:
        """Return when the last deletion came."""
        create = {"key": as_text(_PREFIX), "range_end": as_text(_BEHIND_PREFIX), "filters": ["NOPUT"]}
        deleted, unread = 0, b""
        async with self._etcd.http.post(
            f"{self._endpoint}/v3/watch", json={"create_request": create}, timeout=_TIMEOUT
        ) as answer:
            async for piece in answer.content.iter_any():
                unread += piece
                if _CREATED in unread:
                    self.created.set()
                deleted += unread.count(_DELETED)
                if deleted == self._keys:
                    return time.perf_counter()
                # What is counted may lie in two pieces.
                unread = unread[max(unread.rfind(_DELETED) + len(_DELETED), len(unread) - len(_DELETED)) :]
        raise BenchmarkFailed(f"{self._endpoint} ended a watch after {deleted} of {self._keys} deletions")
