"""Edge: a Kafka quorum's directories become ours and Kafka's again, by command; a trial writes nothing."""

import json
import re
import socket
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from metadata_log.errors import InvalidRequest
from metadata_log.ids import NodeId
from metadata_log.image.metadata_image import EMPTY
from metadata_log.records.brokers import BrokerEndpoint
from metadata_log.records.controllers import RegisterControllerRecord
from metadata_log.records.quorum import Voter, VoterEndpoint
from metadata_log.replay.kafka.files import checkpoint_image
from ops import cli
from ops.given import Misuse
from ops.settings_writing import controller_toml
from ops.takeover.obstacles import Obstacle
from ops.verbs import storage_kafka
from quorum.node.config import ControllerSettings
from quorum.node.restoring import surviving_state
from tests.support.kafka_log import batch as kafka_batch
from tests.support.kafka_log import broker, feature, leader_change, partition, topic, unpacked, value, written
from tests.support.kafka_log import config as kafka_config
from tests.support.lab import settings, uuid

CLUSTER_ID = "bWV0YXF1b3J1bS1wZWVyMA"
IDS = (1, 2, 3)
CHECK_STOPPED = storage_kafka._check_stopped


def config(directory: Path, node_id: int) -> Path:
    """Write the settings of one of our controllers of the recorded cluster."""
    told: ControllerSettings = replace(
        settings(node_id, kafka=True),
        cluster_id=CLUSTER_ID,
        node_id=NodeId(node_id),
        listen_kafka=("127.0.0.1", 9200 + node_id),
    )
    told = replace(told, timing=replace(told.timing, session_timeout_ms=9_000))
    file = directory / f"c{node_id}.toml"
    file.write_text(controller_toml(told, data_dir=f"controller-{node_id}"))
    return file


def properties(directory: Path, node_id: int) -> Path:
    file = directory / f"k{node_id}.properties"
    file.write_text(
        f"process.roles=controller\nnode.id={node_id}\ncontroller.listener.names=CONTROLLER\n"
        f"listeners=CONTROLLER://127.0.0.1:{9300 + node_id}\nlog.dirs={directory / f'k{node_id}'}\n"
    )
    return file


def words(verb: str, sources: list[Path], configs: list[Path], *more: str) -> list[str]:
    named = [word for each in configs for word in ("--config", str(each))]
    return ["storage", verb, *map(str, sources), *named, "--json", *more]


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """The recorded quorum's ports may be anybody's here."""
    monkeypatch.setattr(storage_kafka, "_check_stopped", lambda _image: None)


def ran(capsys: pytest.CaptureFixture[str], command: list[str], *, code: int = 0) -> dict[str, object]:
    assert cli.main(command) == code
    told = capsys.readouterr()
    found: dict[str, object] = json.loads(told.out) if code == 0 else {"said": told.err}
    return found


@pytest.mark.slow
def test_a_cluster_is_taken_over_and_given_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recorded = unpacked(tmp_path / "recorded")
    sources = [recorded / "controller-1", recorded / "controller-3"]
    configs = [config(tmp_path, node_id) for node_id in IDS]
    before = sorted(path.name for path in tmp_path.iterdir())
    trial = ran(capsys, words("import-kafka", sources, configs, "--dry-run"))
    assert sorted(path.name for path in tmp_path.iterdir()) == before
    assert (trial["of_controller"], trial["not_known_to_be_committed"], trial["written"]) == (3, 4, False)
    drop = ["--drop"] if trial["lost"] else []
    if drop:
        assert "would be lost" in str(ran(capsys, words("import-kafka", sources, configs), code=3)["said"])
        assert sorted(path.name for path in tmp_path.iterdir()) == before
    done = ran(capsys, words("import-kafka", sources, configs, *drop))
    kept = {key: value for key, value in trial.items() if key not in ("digest", "written")}
    assert kept == {key: value for key, value in done.items() if key not in ("digest", "written")}
    data = [tmp_path / f"controller-{node_id}" for node_id in IDS]
    assert len({surviving_state(each).image.last_time_ms for each in data}) == 1
    again = ran(capsys, words("import-kafka", sources, configs, *drop))
    assert again["digest"] == done["digest"], "what a call made stays"

    files = [properties(tmp_path, node_id) for node_id in (4, 5, 6)]
    trial = ran(capsys, words("export-kafka", data[:2], files, "--dry-run"))
    assert not (tmp_path / "k4").exists()
    back = ran(capsys, words("export-kafka", data[:2], files))
    assert trial | {"written": True, "digest": back["digest"]} == back
    assert back["topics"] == done["topics"] and back["credentials"] == done["credentials"]
    assert int(str(back["controller_epoch"])) > int(str(done["controller_epoch"]))
    assert back["features"] == features_in(tmp_path / "k4"), "what is shown is what was written"
    relative = tmp_path / "relative.properties"
    relative.write_text(files[0].read_text().replace(f"{tmp_path}/", ""))
    assert cli.main(words("export-kafka", data[:2], [relative], "--dry-run")) == 0
    told = capsys.readouterr()
    assert json.loads(told.out)["controllers"]["4"] == [str(Path("k4").resolve())]
    assert "controller 4: log.dirs is relative" in told.err
    said = ran(capsys, words("export-kafka", data[:2], files), code=6)["said"]
    assert "holds __cluster_metadata-0: move it away" in str(said)
    once_more = ran(
        capsys,
        words("import-kafka", [tmp_path / "k4", tmp_path / "k5"], [moved(tmp_path, 7)], "--dry-run"),
    )
    assert [once_more[key] for key in ("topics", "acls", "quotas", "credentials", "brokers", "lost")] == [
        *(done[key] for key in ("topics", "acls", "quotas", "credentials", "brokers")),
        {},
    ]


def features_in(directory: Path) -> dict[str, int]:
    """Return the levels in the checkpoint of one of Kafka's controllers."""
    (checkpoint,) = (directory / "__cluster_metadata-0").glob("*.checkpoint")
    return dict(sorted(checkpoint_image(checkpoint, cluster_id=CLUSTER_ID).features.items()))


def moved(directory: Path, node_id: int) -> Path:
    """Write settings of a controller that votes alone."""
    told = settings(1, kafka=True)
    voter = replace(told.voters[0], id=NodeId(node_id))
    told = replace(
        told,
        cluster_id=CLUSTER_ID,
        node_id=NodeId(node_id),
        voters=(voter,),
        listen_kafka=("127.0.0.1", 9201),
        timing=replace(told.timing, session_timeout_ms=9_000),
    )
    file = directory / f"c{node_id}.toml"
    file.write_text(controller_toml(told, data_dir=f"controller-{node_id}"))
    return file


def test_a_quorum_that_runs_is_only_looked_at(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded = unpacked(tmp_path / "recorded")
    sources = [recorded / "controller-1", recorded / "controller-3"]
    monkeypatch.setattr("ops.takeover.kafka_state.is_running", lambda path: path == sources[0])
    command = words("import-kafka", sources, [config(tmp_path, 1)])
    assert "stop all of Kafka's controllers first" in str(ran(capsys, command, code=2)["said"])
    assert ran(capsys, [*command, "--dry-run"])["written"] is False


def test_brokers_that_look_for_fixed_voters_elsewhere_are_told_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "kafka"
    written(
        source,
        [
            kafka_batch(0, [leader_change(7, (7,))], control=2),
            kafka_batch(1, [feature("metadata.version", 30)]),
        ],
    )
    meta = source / "meta.properties"
    meta.write_text(f"node.id=7\ncluster.id={CLUSTER_ID}\n")
    command = words("import-kafka", [source], [config(tmp_path, 1)])
    assert cli.main([*command, "--dry-run"]) == 0
    said = capsys.readouterr()
    assert (
        "would be refused: ADDRESSES_UNKNOWN: Kafka's quorum was named by controller.quorum.voters"
        in said.err
    )
    assert [each["code"] for each in json.loads(said.out)["refused"]] == ["ADDRESSES_UNKNOWN"]
    assert "--accept ADDRESSES_UNKNOWN" in str(ran(capsys, command, code=3)["said"])
    assert not (tmp_path / "controller-1").exists()
    assert "none of OTHER_LISTENER" in str(ran(capsys, [*command, "--accept", "ALL"], code=2)["said"])
    done = ran(capsys, [*command, "--accept", "ADDRESSES_UNKNOWN"])
    assert (done["written"], done["refused"]) == (True, [])


def test_topics_with_tiers_are_listed_in_the_table_and_in_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "kafka"
    records = [
        feature("metadata.version", 30),
        broker(11, 3),
        topic("orders", bytes([1]) * 16),
        partition(bytes([1]) * 16, 0, [11]),
        kafka_config(2, "orders", "remote.storage.enable", "true"),
    ]
    written(source, [kafka_batch(0, [leader_change(1, (1,))], control=2), kafka_batch(1, records)])
    (source / "meta.properties").write_text(f"node.id=1\ncluster.id={CLUSTER_ID}\n")
    command = words("import-kafka", [source], [config(tmp_path, 1)])
    trial = ran(capsys, [*command, "--dry-run"])
    assert trial["topics_with_tiers"] == ["orders"]
    assert [each["code"] for each in trial["refused"]] == ["TIERS_OFF"]  # type: ignore[attr-defined]
    assert cli.main([word for word in [*command, "--dry-run"] if word != "--json"]) == 0
    told = capsys.readouterr()
    assert re.search(r"^refused +TIERS_OFF$", told.out, re.MULTILINE)
    assert re.search(r"^topics_with_tiers +orders$", told.out, re.MULTILINE)
    assert "Set remote_log_storage_system_enable = true in [topics]" in told.err
    said = str(ran(capsys, command, code=3)["said"])
    assert "TIERS_OFF: controller 1:" in said and "To go on all the same: --accept TIERS_OFF" in said


def test_a_refusal_names_the_codes_behind_the_first() -> None:
    both = [Obstacle("OTHER_LISTENER", "set the name"), Obstacle("TIERS_OFF", "set the storage")]
    with pytest.raises(InvalidRequest, match=r"^OTHER_LISTENER: set the name.*Refused, too: TIERS_OFF"):
        storage_kafka._check_agreed({}, drop=True, refused=both)


def test_damage_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recorded = unpacked(tmp_path / "recorded")
    segment = max((recorded / "controller-3" / "__cluster_metadata-0").glob("*.log"))
    segment.write_bytes(segment.read_bytes() + kafka_batch(9_999, [value(99, 0, b"")]))
    command = words(
        "import-kafka", [recorded / "controller-3"], [config(tmp_path, 1)], "--gone", "1", "--gone", "2"
    )
    said = str(ran(capsys, command, code=6)["said"])
    assert f"{segment}: byte" in said and "offset 9999 follows" in said


def test_a_controller_that_cannot_be_reached_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Silence is no proof that it has stopped: it may be cut off from here, or frozen."""

    def silent(*_: object, **__: object) -> None:
        raise TimeoutError("timed out")

    monkeypatch.setattr("socket.create_connection", silent)
    voter = Voter(NodeId(1), uuid(1), (VoterEndpoint("CONTROLLER", "127.0.0.1", 9),), 0, 1)
    CHECK_STOPPED(replace(EMPTY, quorum=EMPTY.quorum._replace(voters=(voter,))))
    assert (
        "127.0.0.1:9 was not reached (timed out): make sure that Kafka's controller 1"
        in capsys.readouterr().err
    )


def test_what_listens_where_a_voter_was_is_refused() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        host, port = server.getsockname()
        voter = Voter(NodeId(1), uuid(1), (VoterEndpoint("CONTROLLER", host, port),), 0, 1)
        image = replace(EMPTY, quorum=EMPTY.quorum._replace(voters=(voter,)))
        with pytest.raises(Misuse, match=f"127.0.0.1:{port} listens, where Kafka's controller 1 was"):
            CHECK_STOPPED(image)
        registered = RegisterControllerRecord(
            NodeId(2), uuid(2), 0, False, (BrokerEndpoint("CONTROLLER", host, port, 0),), ()
        )
        at_version_0 = replace(EMPTY, controllers=EMPTY.controllers.set(NodeId(2), registered))
        with pytest.raises(Misuse, match=f"127.0.0.1:{port} listens, where Kafka's controller 2 was"):
            CHECK_STOPPED(at_version_0)
    CHECK_STOPPED(image)
    CHECK_STOPPED(at_version_0)
