"""Edge: `storage import-zookeeper` over a tree in memory: order of its steps, refusals, and what an interruption leaves."""

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from metadata_log.errors import NodeStillAlive
from metadata_log.ids import NodeId
from metadata_log.node.disk.data_directory import format_directory, is_fresh
from metadata_log.zookeeper.bridge import claim
from metadata_log.zookeeper.layout import Node
from ops import cli
from ops.settings_writing import controller_toml
from ops.verbs import import_zookeeper
from quorum.node.restoring import surviving_state
from tests.support.lab import settings, uuid
from tests.unit.metadata_log.zookeeper.test_imported import WHOLE

CLUSTER = "xLsWgpSwTl--KVWOvwWCeQ"
Tree = dict[str, str]


def plain(nodes: Mapping[str, object]) -> Tree:
    return {path: value if isinstance(value, str) else json.dumps(value) for path, value in nodes.items()}


class FakeEnsemble:
    """A tree in memory, with the three calls of `ops.zookeeper.Ensemble`; `calls` has their names."""

    hosts = "zoo:2181"

    def __init__(self, tree: Tree) -> None:
        self.tree, self.calls = tree, list[str]()
        self.appears: Tree = {}
        """What comes into the tree with the claim."""

    def nodes(self) -> Iterator[Node]:
        self.calls.append("nodes")
        for path, text in self.tree.items():
            yield Node(path, text.encode())

    def hold_controller(self, node_id: int, *, unix_ms: int) -> int:
        self.calls.append("hold")
        epoch = int(self.tree["/controller_epoch"])
        if "/controller" not in self.tree:
            epoch += 1
            self.tree |= {
                "/controller_epoch": str(epoch),
                "/controller": claim(node_id, epoch, unix_ms).decode(),
            }
        self.tree |= self.appears
        return epoch

    def give_controller_back(self, node_id: int) -> bool:
        self.calls.append("give back")
        return self.tree.pop("/controller", None) is not None


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch) -> FakeEnsemble:
    ensemble = FakeEnsemble(plain(WHOLE))

    @contextmanager
    def connected(_hosts: str) -> Iterator[FakeEnsemble]:
        yield ensemble

    monkeypatch.setattr(import_zookeeper, "_connected", connected)
    return ensemble


@pytest.fixture
def config(tmp_path: Path) -> str:
    told = replace(settings(3, kafka=True), cluster_id=CLUSTER, listen_kafka=("127.0.0.1", 9203))
    file = tmp_path / "controller.toml"
    file.write_text(controller_toml(told, data_dir="data"))
    format_directory(
        tmp_path / "data",
        role="controller",
        node_id=NodeId(3),
        cluster_id=CLUSTER,
        rng=Random(1),
        directory_id=uuid(503),
    )
    return str(file)


def run(config: str, *more: str) -> int:
    return cli.main(["storage", "import-zookeeper", "zoo:2181", "--config", config, *more])


def test_a111_it_claims_reads_after_the_claim_and_writes_then(
    at: FakeEnsemble, config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Record counts equal those of the tree, and `/controller` has the id of the quorum's controller."""
    assert run(config, "-o", "json") == 0
    told = json.loads(capsys.readouterr().out)
    assert at.calls == ["nodes", "hold", "nodes"]
    assert json.loads(at.tree["/controller"])["brokerid"] == 3
    assert (told["topics"], told["partitions"], told["acls"], told["controller_epoch"]) == (1, 2, 1, 18)
    found = surviving_state(Path(config).parent / "data")
    assert (found.epoch, found.image.quorum.cluster_id) == (18, CLUSTER)
    assert found.image.topics.counts.leaderless == 2 and len(found.image.acls.by_id) == 1


def test_a_dry_run_prints_the_records_and_writes_nothing(
    at: FakeEnsemble, config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    at.tree |= {"/hbase": "", "/config/topics/gone": '{"version":1,"config":{}}'}
    before = dict(at.tree)
    assert run(config, "--dry-run") == 0
    told = capsys.readouterr()
    assert [line.split()[0] for line in told.out.splitlines()[:9]] == [
        *(
            "Topic",
            "Config",
            "Config",
            "Partition",
            "Partition",
            "ProducerIds",
            "ClientQuota",
            "AccessControlEntry",
        ),
        "UserScramCredential",
    ]
    assert "unknown, and left out with all below it: /hbase" in told.err
    assert "left out: /config/topics/gone: no topic of this name" in told.err
    assert (at.tree, at.calls) == (before, ["nodes"])
    assert is_fresh(Path(config).parent / "data")


def test_a_dry_run_hides_secrets(at: FakeEnsemble, config: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(config, "--dry-run", "-o", "json") == 0
    (user,) = (
        each["record"]
        for each in json.loads(capsys.readouterr().out)["records"]
        if each["type"] == "UserScramCredential"
    )
    assert "Lt2t" not in json.dumps(user) and "mask_key" not in {key for key, value in user.items() if value}


def test_a_dry_run_beside_running_brokers_says_what_would_be_refused(
    at: FakeEnsemble, config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    at.tree["/brokers/ids/1"] = "h:9092"
    assert run(config, "--dry-run", "-o", "json") == 0
    told = capsys.readouterr()
    assert "would be refused: brokers run under ZooKeeper: 1 (h:9092)" in told.err
    assert len(json.loads(told.out)["refused"]) == 1


def test_what_is_refused_is_not_claimed(
    at: FakeEnsemble, config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    at.tree |= {"/brokers/ids/1": "h:9092", "/config/clients/c": "{"}
    assert run(config) == 3
    said = capsys.readouterr().err
    assert "(1) brokers run under ZooKeeper" in said and "(2) /config/clients/c" in said
    assert at.calls == ["nodes"]
    assert is_fresh(Path(config).parent / "data")


def test_a_broker_that_comes_beside_the_claim_ends_it(
    at: FakeEnsemble, config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Goal: that broker finds ZooKeeper as it was, and nothing was written here."""
    at.appears = {"/brokers/ids/1": "h:9092"}
    assert run(config) == 3
    assert at.calls == ["nodes", "hold", "nodes", "give back"]
    assert "/controller" not in at.tree and is_fresh(Path(config).parent / "data")


def test_an_interrupted_call_is_made_once_more_in_the_same_epoch(
    at: FakeEnsemble, config: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from quorum.node import restoring

    def crashes(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(restoring, "begin_directory", crashes)
        assert run(config) == 130
    assert "/controller" in at.tree
    assert run(config) == 0
    assert surviving_state(Path(config).parent / "data").epoch == 18


def test_it_begins_a_directory_once(
    at: FakeEnsemble, config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(config) == 0
    at.calls.clear()
    assert run(config) == 6
    assert "a state was restored into it" in capsys.readouterr().err
    assert at.calls == []


def test_the_claim_is_given_back_on_request(
    at: FakeEnsemble, config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(config) == 0
    capsys.readouterr()
    assert run(config, "--give-back", "-o", "json") == 0
    assert json.loads(capsys.readouterr().out)["given_back"] is True
    assert "/controller" not in at.tree
    assert run(config, "--give-back", "--dry-run") == 2


def test_another_controller_that_was_quicker_is_an_answer(
    at: FakeEnsemble, config: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(*_: object, **__: object) -> int:
        raise NodeStillAlive("another node became the controller meanwhile")

    monkeypatch.setattr(at, "hold_controller", lost)
    assert run(config) == 3
    assert is_fresh(Path(config).parent / "data")


def test_without_kazoo_the_message_names_the_extra(
    config: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "kazoo", None)
    monkeypatch.setitem(sys.modules, "kazoo.client", None)
    monkeypatch.delitem(sys.modules, "ops.zookeeper", raising=False)
    assert run(config) == 2
    assert "pip install 'metaquorum[zookeeper]'" in capsys.readouterr().err
