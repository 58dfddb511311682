"""Edge: a process of its own that holds many watches of one key of etcd, as `ops.bench.pollers` holds our polls.

    python -m ops.bench.etcd_watchers '{"count": N, "endpoints": [URL, ...], "key": KEY}'

Each watch has a connection of its own to the JSON gateway. Positions are revisions. A watch that breaks begins again after
the revision that it had, so that it misses nothing. Tests: tests/cluster/test_bench.py.
"""

import json
import re
import sys
from typing import Final

from ops.bench.etcd_peer import as_text
from ops.bench.held_connections import Held, HeldConnections
from ops.bench.lean_client import request_bytes

_REVISION: Final = re.compile(rb'"mod_revision":"(\d+)"')


class Watchers(HeldConnections):
    def __init__(self, count: int, endpoints: list[str], key: str) -> None:
        self._url = f"{endpoints[0]}/v3/watch"
        self._key = key.encode()
        super().__init__(count, endpoints, self._request(1))

    def received(self, held: Held, data: bytes) -> None:
        """Take whole lines: an event of a small value is one."""
        whole, _, held.received = data.rpartition(b"\n")
        if revisions := _REVISION.findall(whole):
            reached = int(revisions[-1])
            self.answered(held, reached, self._request(reached + 1))

    def _request(self, from_revision: int) -> bytes:
        create = {"key": as_text(self._key), "start_revision": str(from_revision)}
        return request_bytes("POST", self._url, json.dumps({"create_request": create}).encode(), {})


if __name__ == "__main__":
    Watchers(**json.loads(sys.argv[1])).run()
