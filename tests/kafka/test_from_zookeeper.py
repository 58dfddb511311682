"""Edge: a real ZooKeeper is read and held; brokers of Kafka 3.9 that ran under it go on under this quorum, as 4.3."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from kazoo.exceptions import NodeExistsError
from kazoo.security import make_digest_acl

from metadata_log.errors import NodeStillAlive, NotAuthorized
from metadata_log.zookeeper.bridge import CONTROLLER_PATH, refusals
from metadata_log.zookeeper.imported import Imported, imported
from ops.bench.import_zookeeper import import_zookeeper
from ops.kafka.zookeeper import ensemble
from ops.local.layout import HOST
from ops.zookeeper import EnsembleUnavailable, connected
from tests.kafka.from_zookeeper import TOPICS, client, move, read, write
from tests.support.processes import free_port, poll_until
from tests.unit.metadata_log.zookeeper.test_imported import WHOLE
from tests.unit.ops.verbs.test_import_zookeeper import plain

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with ensemble(tmp_path_factory.mktemp("zoo") / "zookeeper", address=(HOST, free_port())) as at:
        yield at


@pytest.fixture
def hosts(root: str, request: pytest.FixtureRequest) -> str:
    """Return a folder of its own for each test, filled with a small cluster of 3.9."""
    folder = request.node.name
    write(
        root,
        {f"/{folder}{path}": text for path, text in plain(WHOLE).items() if path not in ("/", "/zookeeper")},
    )
    return f"{root}/{folder}"


def found_at(hosts: str) -> Imported:
    with connected(hosts) as at:
        return imported(at.nodes(), Random(1))


def test_a_real_tree_is_read_as_one_in_memory(hosts: str) -> None:
    """Goal: the reader leaves nothing out. Method: the same nodes folded in memory; and an unknown one with children."""
    write(hosts, {"/hbase/a/b": "x", "/consumers/group/offsets": ""})
    found = found_at(hosts)
    assert sum(found.counts().values()) == 10
    assert found.findings.unknown == ["/hbase"], "what lies below is not looked at"
    assert [path for path, _ in found.findings.left_out] == ["/consumers"]
    assert found.findings.damaged == []
    assert [*refusals(found, node_id=3000, cluster_id=found.cluster_id or "")] == []


def test_a111_the_claim_raises_the_epoch_and_keeps_brokers_from_becoming_the_controller(hosts: str) -> None:
    with connected(hosts) as at:
        epoch = at.hold_controller(3000, unix_ms=1)
        assert at.hold_controller(3000, unix_ms=2) == epoch, "a held one is held on"
        with pytest.raises(NodeStillAlive):
            at.hold_controller(3001, unix_ms=3)
    assert (epoch, read(hosts, "/controller_epoch")) == (18, "18")
    assert json.loads(read(hosts, CONTROLLER_PATH))["brokerid"] == 3000, "it outlives the session"
    with client(hosts) as broker, pytest.raises(NodeExistsError):
        broker.create(CONTROLLER_PATH, b'{"version":2,"brokerid":1}', ephemeral=True)
    with connected(hosts) as at:
        assert at.give_controller_back(3000)
        assert not at.give_controller_back(3000)


def test_a_controller_that_lives_is_found_and_never_taken_for_ours(hosts: str) -> None:
    with client(hosts) as broker:
        broker.create(
            CONTROLLER_PATH, b'{"version":2,"brokerid":1,"kraftControllerEpoch":-1}', ephemeral=True
        )
        found = found_at(hosts)
        assert found.controller_is_ephemeral
        with connected(hosts) as at, pytest.raises(NodeStillAlive):
            at.hold_controller(1, unix_ms=1)
    assert read(hosts, "/controller_epoch") == "17"
    poll_until(lambda: found_at(hosts).controller is None, deadline_s=60, what="the session has ended")


def test_a_tree_that_is_protected_is_refused_with_the_cure(hosts: str) -> None:
    """Goal: brokers with `zookeeper.set.acl` let no stranger read credentials: that is no damage, and no empty cluster."""
    with client(hosts) as broker:
        mine = make_digest_acl("broker", "secret", all=True)
        broker.create("/config/users/bob", b"{}", acl=[mine])
    with connected(hosts) as at, pytest.raises(NotAuthorized, match=r"/config/users/bob: .*skipACL=yes"):
        list(at.nodes())


def test_an_ensemble_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ops.zookeeper.CONNECT_TIMEOUT_S", 0.5)
    with pytest.raises(EnsembleUnavailable, match="no server of ZooKeeper answers"), connected(f"{HOST}:1"):
        pass


def test_a4_both_recipes_elect_by_who_wrote_first_and_know_no_log(root: str) -> None:
    """A4: names that race in the order c, a, b elect c. Of the sequence numbers a 1, c 2, b 3 the lowest, a, is elected.

    When the winner's session ends, the next one is elected. What each candidate has of the data plays no part.
    """
    with client(root) as c, client(root) as a, client(root) as b:
        for name, candidate in (("c", c), ("a", a), ("b", b)):
            try:
                candidate.create("/a4-name", name.encode(), ephemeral=True)
            except NodeExistsError:
                assert name != "c"
        assert read(root, "/a4-name") == "c"
        c.ensure_path("/a4-line")
        made = {
            name: candidate.create("/a4-line/n-", b"", ephemeral=True, sequence=True)
            for name, candidate in (("a", a), ("c", c), ("b", b))
        }
        assert min(made, key=made.__getitem__) == "a"
        a.stop()
        poll_until(
            lambda: len(b.get_children("/a4-line")) == 2, deadline_s=60, what="the winner has vanished"
        )
        assert min(b.get_children("/a4-line")) == made["c"].rpartition("/")[2]


def test_the_benchmark_takes_over_all_partitions() -> None:
    answer = import_zookeeper(rounds=1, topics=50)
    assert answer["params"]["partitions"] == 500
    assert answer["ours"]["p50"] >= answer["ours"]["read_p50"] > 0


def test_brokers_of_39_go_on_under_this_quorum_without_a_loss(tmp_path: Path) -> None:
    """A110, A111: from the bridge release here, stop and go; brokers of 4.3 open the log directories of 3.9.

    Goal: every record that was acknowledged under ZooKeeper is consumed. Method: two brokers of 3.9.2 under a real
    ZooKeeper; the import is refused while they run; then it is made, one of them is started under ZooKeeper once more
    by mistake, and does not become the controller; then both are started as brokers of 4.3.1, on the same directories.
    """
    found = asyncio.run(move(tmp_path / "c"))
    assert "brokers run under ZooKeeper: 11" in found.refused_running
    told = json.loads(found.imported)
    assert (told["topics"], told["partitions"]) == (len(TOPICS), sum(TOPICS.values()))
    assert (told["quotas"], told["acls"], told["unknown"]) == (2, 1, ["/somebody"])
    assert json.loads(found.controller_node)["brokerid"] == 1
    assert (found.failed, found.lost, found.doubled) == (0, 0, 0)
    assert found.partitions == TOPICS
    assert found.led == sum(TOPICS.values())
