"""Edge: reads the tree of a ZooKeeper ensemble, and holds `/controller` there, through kazoo.

Tests: tests/kafka/test_from_zookeeper.py.
"""

import logging
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError

from metadata_log.errors import InvalidRequest, NodeStillAlive, Unavailable
from metadata_log.zookeeper.bridge import CONTROLLER_PATH, EPOCH_PATH, claim, is_claimed_by
from metadata_log.zookeeper.layout import Node, is_entered
from metadata_log.zookeeper.values import ControllerNode, DamagedNode, read, read_number

_silent: Final = logging.getLogger("ops.zookeeper.kazoo")
_silent.addHandler(logging.NullHandler())
_silent.propagate = False

CONNECT_TIMEOUT_S: Final = 15.0
REQUEST_TIMEOUT_S: Final = 60.0
IN_FLIGHT_MAX: Final = 256
"""Requests that wait for their answers: a round trip is shared by so many, and the ensemble's queue stays short."""
NODES_MAX: Final = 4_000_000
"""Of one tree: a million partitions have three nodes each."""


class EnsembleUnavailable(Unavailable):
    """An ensemble of ZooKeeper does not answer; the message names it."""

    error, code = "BROKER_NOT_AVAILABLE", 8


class Ensemble:
    """A session with an ensemble; `hosts` may end with the folder that Kafka uses. Made by `connected` alone."""

    def __init__(self, client: KazooClient, hosts: str) -> None:
        self._client = client
        self.hosts = hosts

    def nodes(self) -> Iterator[Node]:
        """Yield all nodes, but what lies below unknown ones and below those that `layout` does not enter.

        Raises:
            EnsembleUnavailable: it stopped answering.
            InvalidRequest: there are more than NODES_MAX nodes.
        """
        waiting: deque[str] = deque(["/"])
        asked: deque[tuple[str, bool, Any]] = deque()
        count = 0
        while waiting or asked:
            while waiting and len(asked) < IN_FLIGHT_MAX:
                path = waiting.popleft()
                asked.append((path, False, self._client.get_async(path)))
            path, is_list, answer = asked.popleft()
            try:
                found = answer.get(timeout=REQUEST_TIMEOUT_S)
            except NoNodeError:
                continue  # deleted since its folder was listed
            if is_list:
                waiting.extend(f"{path.rstrip('/')}/{name}" for name in sorted(found))
                continue
            count += 1
            if count > NODES_MAX:
                raise InvalidRequest(f"{self.hosts}: more than {NODES_MAX} nodes: name the folder of Kafka's")
            data, stat = found
            is_parent = stat.numChildren > 0
            if is_parent and is_entered(path):
                asked.append((path, True, self._client.get_children_async(path)))
            yield Node(path, data or b"", stat.version, stat.ephemeralOwner != 0, is_parent)

    def hold_controller(self, node_id: int, *, unix_ms: int) -> int:
        """Hold `/controller` for a controller of ours, in a new epoch, and return that; a held one is held on.

        The node stays when the session ends. Epoch and node change together, as where a broker becomes the controller.

        Raises:
            NodeStillAlive: another node holds it, or took it meanwhile.
            EnsembleUnavailable: it stopped answering.
        """
        text, stat = self._client.get(EPOCH_PATH)
        epoch = read_number(text)
        if is_claimed_by(self._controller(), node_id):
            return epoch
        transaction = self._client.transaction()
        transaction.set_data(EPOCH_PATH, b"%d" % (epoch + 1), version=stat.version)
        transaction.create(CONTROLLER_PATH, claim(node_id, epoch + 1, unix_ms))
        for result in transaction.commit():
            if isinstance(result, Exception):
                raise NodeStillAlive(
                    f"{self.hosts}: another node became the controller meanwhile: stop all brokers"
                ) from result
        return epoch + 1

    def give_controller_back(self, node_id: int) -> bool:
        """Delete `/controller` if a controller of ours holds it; answer whether it did."""
        if not is_claimed_by(self._controller(), node_id):
            return False
        self._client.delete(CONTROLLER_PATH)
        return True

    def _controller(self) -> ControllerNode | None:
        try:
            data, _ = self._client.get(CONTROLLER_PATH)
            return read(ControllerNode, data)
        except NoNodeError:
            return None


@contextmanager
def connected(hosts: str) -> Iterator[Ensemble]:
    """Hold a session with an ensemble while the block runs.

    Raises:
        EnsembleUnavailable: no server of it answers, or it stopped answering.
    """
    client = KazooClient(hosts=hosts, timeout=CONNECT_TIMEOUT_S, logger=_silent)
    try:
        client.start(timeout=CONNECT_TIMEOUT_S)
        yield Ensemble(client, hosts)
    except KazooTimeoutError as error:
        raise EnsembleUnavailable(f"{hosts}: no server of ZooKeeper answers") from error
    except (KazooException, DamagedNode) as error:
        raise EnsembleUnavailable(f"{hosts}: {type(error).__name__} {error}") from error
    finally:
        client.stop()
        client.close()
