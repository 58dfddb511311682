"""Edge: reads the tree of a ZooKeeper ensemble, and holds `/controller` there, through kazoo.

Tests: tests/kafka/test_from_zookeeper.py.
"""

import logging
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NoAuthError, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError

from metadata_log.errors import InvalidRequest, NodeStillAlive, NotAuthorized, Unavailable
from metadata_log.zookeeper.bridge import CONTROLLER_PATH, EPOCH_PATH, claim, is_claimed_by
from metadata_log.zookeeper.layout import Kind, Node, is_entered, place_of
from metadata_log.zookeeper.values import ControllerNode, DamagedNode, read, read_number

SILENT: Final = logging.getLogger("ops.zookeeper.kazoo")
SILENT.addHandler(logging.NullHandler())
SILENT.propagate = False

CONNECT_TIMEOUT_S: Final = 15.0
REQUEST_TIMEOUT_S: Final = 60.0
_NO_RIGHT: Final = (
    "the brokers protected it (zookeeper.set.acl), and this command logs in nowhere. Restart the servers of ZooKeeper with "
    "-Dzookeeper.skipACL=yes while the cluster is stopped, where no stranger reaches them"
)
IN_FLIGHT_MAX: Final = 500
"""Requests that wait for their answers: half of what a server of ZooKeeper takes from all its clients together."""
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

    def nodes(self, roots: Sequence[str] = ("/",)) -> Iterator[Node]:
        """Yield these nodes and all below them, but what lies below unknown ones and those that `layout` does not enter.

        A level of the tree is asked for in parts, and the next part once a part is answered whole: two threads that hand
        over single requests to each other wait for the interpreter more than for the ensemble.

        Raises:
            EnsembleUnavailable: it stopped answering.
            InvalidRequest: there are more than NODES_MAX nodes.
        """
        waiting: deque[str] = deque(roots)
        count = 0
        while waiting:
            part = [waiting.popleft() for _ in range(min(len(waiting), IN_FLIGHT_MAX))]
            for node, names in self._read(part):
                count += 1
                if count > NODES_MAX:
                    raise InvalidRequest(
                        f"{self.hosts}: more than {NODES_MAX} nodes: name the folder of Kafka's"
                    )
                yield node
                waiting.extend(f"{node.path.rstrip('/')}/{name}" for name in sorted(names))

    def _read(self, paths: Sequence[str]) -> Iterator[tuple[Node, Sequence[str]]]:
        """Yield those of some nodes that are there, each with the names below it that are to be read, too.

        Of a folder, which has no data, the names come with the first request.
        """
        client = self._client
        lists = _answers(
            {path: client.get_children_async(path, include_data=True) for path in paths if _is_folder(path)}
        )
        asked = [
            path for path in paths if not _is_folder(path) or (path in lists and lists[path][1].dataLength)
        ]
        found = _answers({path: client.get_async(path) for path in asked})
        parents = [
            path
            for path, (_, stat) in found.items()
            if stat.numChildren and path not in lists and is_entered(path)
        ]
        names = _answers({path: client.get_children_async(path) for path in parents})
        for path in paths:
            if path in found:
                data, stat = found[path]
            elif path in lists and not lists[path][1].dataLength:
                data, stat = b"", lists[path][1]
            else:
                continue  # deleted since its folder was listed
            node = Node(path, data or b"", stat.version, stat.ephemeralOwner != 0, stat.numChildren > 0)
            yield node, lists[path][0] if path in lists else names.get(path, ())

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
            if isinstance(result, NoAuthError):
                raise NotAuthorized(f"{CONTROLLER_PATH}: {_NO_RIGHT}") from result
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


def _is_folder(path: str) -> bool:
    place = place_of(path)
    return place is not None and place.kind is Kind.FOLDER


def _answers(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Wait for the answers to requests, by path; those for nodes that are not there are left out.

    Raises:
        NotAuthorized: one may not be read without a login.
    """
    found = {}
    for path, answer in asked.items():
        try:
            found[path] = answer.get(timeout=REQUEST_TIMEOUT_S)
        except NoNodeError:
            continue
        except NoAuthError as error:
            raise NotAuthorized(f"{path}: {_NO_RIGHT}") from error
    return found


@contextmanager
def connected(hosts: str) -> Iterator[Ensemble]:
    """Hold a session with an ensemble while the block runs.

    Raises:
        EnsembleUnavailable: no server of it answers, or it stopped answering.
    """
    client = KazooClient(hosts=hosts, timeout=CONNECT_TIMEOUT_S, logger=SILENT)
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
