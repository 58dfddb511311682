"""Edge: `storage import-zookeeper` over a tree in memory: order of its steps, refusals, and what an interruption leaves."""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from metadata_log.errors import NodeStillAlive
from metadata_log.ids import NodeId
from metadata_log.zookeeper.bridge import claim
from metadata_log.zookeeper.layout import Node
from ops import cli
from ops.settings_writing import controller_toml
from ops.takeover import taking_over
from ops.verbs import import_zookeeper
from quorum.node.restoring import surviving_state
from tests.support.lab import settings
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

    def nodes(self, roots: Sequence[str] = ("/",)) -> Iterator[Node]:
        self.calls.append("all" if "/" in roots else "some")
        for path, text in self.tree.items():
            if any(path == root or path.startswith(f"{root.rstrip('/')}/") for root in roots):
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


CONTROLLERS = (2000, 2001)


def settings_of(folder: Path, number: int, **changes: Any) -> Path:
    """Write the settings of the first or second controller of two."""
    base = settings(1, kafka=True)
    voters = tuple(
        replace(voter, id=NodeId(node_id))
        for voter, node_id in zip(base.voters[: len(CONTROLLERS)], CONTROLLERS, strict=True)
    )
    told = replace(
        base,
        node_id=NodeId(CONTROLLERS[number]),
        cluster_id=CLUSTER,
        voters=voters,
        listen_http=("127.0.0.1", 8001 + number),
        listen_raft=("127.0.0.1", 9001 + number),
        listen_kafka=("127.0.0.1", 9201 + number),
    )
    file = folder / f"controller-{number}.toml"
    file.write_text(controller_toml(replace(told, **changes), data_dir=f"data-{number}"))
    return file


@pytest.fixture
def config(tmp_path: Path) -> str:
    return str(settings_of(tmp_path, 0))


def data(config: str, number: int = 0) -> Path:
    return Path(config).parent / f"data-{number}"


def run(config: str, *more: str) -> int:
    return cli.main(["storage", "import-zookeeper", "zoo:2181", "--config", config, *more])


def test_a111_it_claims_reads_after_the_claim_and_writes_then(
    at: FakeEnsemble, config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Record counts equal those of the tree, and `/controller` has the id of the quorum's controller."""
    assert run(config, "-o", "json") == 0
    told = json.loads(capsys.readouterr().out)
    assert at.calls == ["some", "hold", "all"]
    assert json.loads(at.tree["/controller"])["brokerid"] == CONTROLLERS[0]
    assert (told["topics"], told["partitions"], told["acls"], told["controller_epoch"]) == (1, 2, 1, 18)
    found = surviving_state(data(config))
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
    assert (at.tree, at.calls) == (before, ["all"])
    assert not data(config).exists()


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


def test_a_dry_run_and_a_real_one_refuse_two_settings_of_one_directory(
    at: FakeEnsemble, config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    second = settings_of(Path(config).parent, 1)
    second.write_text(second.read_text().replace("data-1", "data-0"))
    told = f"{data(config)}: is named for two directories"
    assert run(config, "--config", str(second), "--dry-run", "-o", "json") == 0
    said = capsys.readouterr()
    assert f"would be refused: {told}" in said.err
    assert [each.startswith(told) for each in json.loads(said.out)["refused"]] == [True]
    assert run(config, "--config", str(second)) == 3
    assert told in capsys.readouterr().err
    assert not data(config).exists()


def test_a_dry_run_tells_a_directory_of_an_interrupted_call_from_one_that_is_used(
    at: FakeEnsemble, config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(config) == 0
    capsys.readouterr()
    assert run(config, "--dry-run", "-o", "json") == 0
    assert json.loads(capsys.readouterr().out)["refused"] == []
    at.tree |= {"/controller_epoch": "30"}
    assert run(config, "--dry-run", "-o", "json") == 0
    (refused,) = json.loads(capsys.readouterr().out)["refused"]
    assert "a controller has run in it, or another state was put into it" in refused


def test_a_cluster_that_runs_is_not_claimed(
    at: FakeEnsemble, config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    at.tree |= {"/brokers/ids/1": "h:9092", "/migration": '{"kraft_controller_id":3000}'}
    assert run(config) == 3
    said = capsys.readouterr().err
    assert "(1) brokers run under ZooKeeper" in said and "(2) a migration to KRaft was begun" in said
    assert at.calls == ["some"]
    assert not data(config).exists()


def test_a_damaged_tree_is_given_back(
    at: FakeEnsemble, config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    at.tree |= {"/config/clients/c": "{", "/kafka-acl/Topic/t": "["}
    assert run(config) == 3
    said = capsys.readouterr().err
    assert "(1) /kafka-acl/Topic/t" in said and "(2) /config/clients/c" in said
    assert at.calls == ["some", "hold", "all", "give back"]
    assert "/controller" not in at.tree
    assert not data(config).exists()


def test_a_broker_that_comes_beside_the_claim_ends_it(
    at: FakeEnsemble, config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Goal: that broker finds ZooKeeper as it was, and nothing was written here."""
    at.appears = {"/brokers/ids/1": "h:9092"}
    assert run(config) == 3
    assert at.calls == ["some", "hold", "all", "give back"]
    assert "/controller" not in at.tree and not data(config).exists()


def test_an_interrupted_call_is_made_once_more_in_the_same_epoch(
    at: FakeEnsemble, config: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: what was read once more, with other random ids, changes nothing that is written already."""
    second = str(settings_of(Path(config).parent, 1))
    with monkeypatch.context() as patch:
        put_in_place = taking_over._put_in_place

        def crashes(path: Path) -> None:
            if path == data(config, 1):
                raise KeyboardInterrupt
            put_in_place(path)

        patch.setattr(taking_over, "_put_in_place", crashes)
        assert run(config, "--config", second) == 130
    assert "/controller" in at.tree and not data(config, 1).exists()
    assert run(config, "--config", second) == 0
    first, other = (surviving_state(data(config, number)) for number in (0, 1))
    assert first.image == other.image and first.epoch == 18
    assert [voter.node_id for voter in first.image.quorum.voters or ()] == [*CONTROLLERS]


def test_a_directory_in_which_something_else_began_is_refused(
    at: FakeEnsemble, config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Goal: a cluster that goes on is not begun once more. Method: ZooKeeper's epoch went on, too."""
    assert run(config) == 0
    assert run(config) == 0, "the same call changes nothing"
    at.tree |= {"/controller_epoch": "30"}
    at.calls.clear()
    assert run(config) == 6
    assert "a controller has run in it, or another state was put into it" in capsys.readouterr().err
    assert at.calls == ["some", "hold", "all"]
    assert "/controller" in at.tree, "it was held before, and stays so"


def test_settings_that_do_not_go_together_are_refused(
    at: FakeEnsemble, config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(config, "--config", config) == 3
    assert "two of the settings are of one controller" in capsys.readouterr().err
    voters = tuple(
        replace(voter, id=NodeId(2000 + at)) for at, voter in enumerate(settings(1, kafka=True).voters)
    )
    other = settings_of(Path(config).parent, 1, voters=voters)
    assert run(config, "--config", str(other)) == 3
    assert "controllers 2000 and 2001 differ in cluster_id or [[voters]]" in capsys.readouterr().err


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
    assert not data(config).exists()


def test_without_kazoo_the_message_names_the_extra(
    config: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "kazoo", None)
    monkeypatch.setitem(sys.modules, "kazoo.client", None)
    monkeypatch.delitem(sys.modules, "ops.zookeeper", raising=False)
    assert run(config) == 2
    assert "pip install 'metaquorum[zookeeper]'" in capsys.readouterr().err
