"""What Kafka's controllers begin with says all that ours held, and is there whole or not at all."""

import json
import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from metadata_log.errors import ForeignDirectory, InvalidRequest
from metadata_log.ids import NodeId
from metadata_log.image.metadata_image import EMPTY, MetadataImage
from metadata_log.node.disk.data_directory import format_directory
from metadata_log.records.features import METAQUORUM_VERSION, METAQUORUM_VERSION_LEVEL
from metadata_log.records.quorum import RAFT_ENDPOINT, Voter, VoterEndpoint
from ops.takeover import giving_back
from ops.takeover.giving_back import (
    KafkaController,
    check_may_give_back,
    give_back,
    given_back,
    read_controller,
    stopped_state,
)
from ops.takeover.kafka_state import kafka_state
from ops.takeover.taking_over import OFFSETS_SKIPPED
from quorum.node.restoring import EPOCHS_SKIPPED, Survivor, begin_directory, restored
from tests.support.histories import history_of, small_uuid
from tests.support.images import lines

CLUSTER_ID = "B" * 22
STATE = history_of(7, 60)[-1].image
VOTERS = tuple(
    Voter(
        NodeId(number), small_uuid(number), (VoterEndpoint(RAFT_ENDPOINT, "127.0.0.1", 9000 + number),), 0, 1
    )
    for number in (1, 2, 3)
)


def survivor(of: MetadataImage = STATE) -> Survivor:
    image = restored(of, cluster_id=CLUSTER_ID, voters=VOTERS, epoch=of.controller_epoch)
    return Survivor(image, applied_end=image.end_offset, epoch=image.controller_epoch + 2)


def controllers(directory: Path, *ids: int) -> list[KafkaController]:
    return [
        KafkaController(node_id, "CONTROLLER", ("127.0.0.1", 9900 + node_id), directory / f"k{node_id}", ())
        for node_id in ids
    ]


def test_kafka_reads_what_ours_held(tmp_path: Path) -> None:
    """Goal: brokers, topics, ACLs, quotas and levels are all there. Method: our own reader of Kafka's directories."""
    given = controllers(tmp_path, 1, 2, 3)
    at_our_level = replace(STATE, features=STATE.features.set(METAQUORUM_VERSION, METAQUORUM_VERSION_LEVEL))
    image, directory_ids = given_back(survivor(of=at_our_level), given)
    give_back(image, given, directory_ids)
    assert image.end_offset == STATE.end_offset + OFFSETS_SKIPPED
    assert image.controller_epoch == STATE.controller_epoch + 2 + EPOCHS_SKIPPED
    read = kafka_state([each.metadata_dir for each in given], rng=random.Random(1))
    assert (read.image.end_offset, read.epoch) == (image.end_offset, image.controller_epoch)
    living = replace(STATE, topics=replace(STATE.topics, deleted=EMPTY.topics.deleted))
    ours = ("quorum", "features", "controllers", "users", "configs")
    assert lines(read.image, *ours) == lines(living, *ours), "topics that could be restored are left out"
    assert {*read.image.topics.ids} == {*STATE.topics.ids}
    assert {*read.image.users} == {*STATE.users}
    for key, credential in read.image.users.items():
        assert credential.stored_key == STATE.users[key].stored_key
    assert dict(read.image.features) == {
        name: level for name, level in STATE.features.items() if name != METAQUORUM_VERSION
    }
    assert [(each.node_id, each.endpoints[0][0]) for each in read.image.quorum.voters or ()] == [
        (number, "CONTROLLER") for number in (1, 2, 3)
    ]
    assert not read.lost and not read.left_out
    for each in given:
        text = (each.metadata_dir / "meta.properties").read_text()
        assert f"cluster.id={CLUSTER_ID}\nnode.id={each.node_id}\n" in text
        quorum_state = json.loads((each.metadata_dir / "__cluster_metadata-0" / "quorum-state").read_text())
        assert (quorum_state["leaderEpoch"], quorum_state["leaderId"]) == (image.controller_epoch, -1)
    assert len({(each.metadata_dir / "meta.properties").read_text() for each in given}) == 3


def test_kafkas_controllers_know_the_voters_of_a_cluster_at_kraft_version_0(tmp_path: Path) -> None:
    given = controllers(tmp_path, 1, 2, 3)
    image, directory_ids = given_back(
        survivor(of=replace(STATE, quorum=STATE.quorum._replace(kraft_version=0))), given
    )
    give_back(image, given, directory_ids)
    read = kafka_state([given[0].metadata_dir], gone=(2, 3), rng=random.Random(1)).image.quorum
    assert read.kraft_version == 1
    assert {each.node_id: each.directory_id for each in read.voters or ()} == directory_ids


@pytest.mark.slow
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("at", [1, 2, 3])
@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (giving_back, "replace_file"),
        (giving_back, "_write_checkpoint"),
        (giving_back, "sync_directory"),
        (Path, "rename"),
    ],
)
def test_a_crash_at_any_step_leaves_no_half_of_a_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, at: int, when: str
) -> None:
    given = controllers(tmp_path, 1, 2, 3)
    image, directory_ids = given_back(survivor(), given)
    shipped: Callable[..., object] = getattr(owner, name)
    calls = 0

    def crashes(*of: Any, **more: Any) -> object:
        nonlocal calls
        calls += 1
        if calls != at:
            return shipped(*of, **more)
        if when == "after":
            shipped(*of, **more)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, crashes)
        with pytest.raises(KeyboardInterrupt):
            give_back(image, given, directory_ids)
    for each in given:
        if each.metadata_dir.exists():
            assert kafka_state([each.metadata_dir], gone=others(each), rng=random.Random(1)).epoch
            shutil.rmtree(each.metadata_dir)
    give_back(image, given, directory_ids)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["k1", "k2", "k3"]


def others(of: KafkaController) -> list[int]:
    return [number for number in (1, 2, 3) if number != of.node_id]


def test_a_directory_that_holds_something_is_left_alone(tmp_path: Path) -> None:
    given = controllers(tmp_path, 1, 2)
    given[1].metadata_dir.mkdir()
    check_may_give_back(given)
    (given[1].metadata_dir / "meta.properties").touch()
    image, directory_ids = given_back(survivor(), given)
    with pytest.raises(ForeignDirectory, match=r"holds meta\.properties: move it away"):
        give_back(image, given, directory_ids)
    assert not given[0].metadata_dir.exists()


def test_each_directory_of_kafkas_has_its_own_place(tmp_path: Path) -> None:
    given = controllers(tmp_path, 1, 2)
    (tmp_path / "link").symlink_to(given[0].metadata_dir)
    given[1] = given[1]._replace(log_dirs=(tmp_path / "link",))
    image, directory_ids = given_back(survivor(), given)
    with pytest.raises(InvalidRequest, match="k1: is named for two directories"):
        check_may_give_back(given)
    with pytest.raises(InvalidRequest, match="k1: is named for two directories"):
        give_back(image, given, directory_ids)
    assert [path.name for path in tmp_path.iterdir()] == ["link"], "all are checked before any is written"


def test_a_link_to_a_directory_of_kafkas_stays(tmp_path: Path) -> None:
    given, there = controllers(tmp_path, 1), tmp_path / "disk" / "k"
    there.mkdir(parents=True)
    given[0].metadata_dir.symlink_to(there)
    image, directory_ids = given_back(survivor(), given)
    give_back(image, given, directory_ids)
    assert given[0].metadata_dir.is_symlink() and [path.name for path in there.parent.iterdir()] == ["k"]
    assert kafka_state([given[0].metadata_dir], rng=random.Random(1)).epoch == image.controller_epoch


def test_ids_are_of_one_controller_each_and_of_no_broker(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="two of the files are of one controller"):
        given_back(survivor(), controllers(tmp_path, 1, 1))
    with pytest.raises(InvalidRequest, match="is a broker's"):
        given_back(survivor(), controllers(tmp_path, int(min(STATE.brokers))))


# --- what ours left


def begun(directory: Path, node_id: int, image: MetadataImage, *, directory_id: int | None = None) -> Path:
    path = directory / f"controller-{node_id}"
    format_directory(
        path,
        role="controller",
        node_id=NodeId(node_id),
        cluster_id=CLUSTER_ID,
        rng=random.Random(1),
        directory_id=small_uuid(directory_id or node_id),
    )
    begin_directory(path, image)
    return path


def test_the_newest_log_of_a_majority_counts(tmp_path: Path) -> None:
    old = survivor().image
    new = replace(old, end_offset=old.end_offset + 5)
    paths = [begun(tmp_path, 1, old), begun(tmp_path, 2, new)]
    found, path = stopped_state(paths)
    assert (path, found.image.end_offset) == (paths[1], new.end_offset)
    with pytest.raises(InvalidRequest, match=r"1 of the 3 voters' directories are here.*2, 3"):
        stopped_state(paths[:1])
    assert stopped_state(paths[:1], gone=(2, 3))[0].image == old


def test_a_directory_counts_where_its_voter_votes_with_it(tmp_path: Path) -> None:
    """Method: node 2 has an older directory, too, and votes with the newer one."""
    image = survivor().image
    path, own = begun(tmp_path, 1, image), begun(tmp_path, 2, image)
    former = begun(tmp_path / "former", 2, image, directory_id=9)
    with pytest.raises(InvalidRequest, match="node 2 votes with directory"):
        stopped_state([path, former])
    with pytest.raises(InvalidRequest, match="two directories are of node 2"):
        stopped_state([path, own, former])
    stopped_state([path, own])


# --- the properties


GOOD = {
    "process.roles": "controller",
    "node.id": "7",
    "controller.listener.names": "CONTROLLER,OTHER",
    "listeners": "OTHER://h:1,CONTROLLER://localhost:9093",
    "log.dirs": "/a,/b",
}


def properties(directory: Path, **changes: str | None) -> Path:
    found = {**GOOD, **{key.replace("_", "."): value for key, value in changes.items()}}
    file = directory / "controller.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in found.items() if value is not None))
    return file


def test_a_controller_is_read_from_its_properties(tmp_path: Path) -> None:
    found = read_controller(properties(tmp_path))
    assert found == KafkaController(7, "CONTROLLER", ("localhost", 9093), Path("/a"), (Path("/b"),))
    assert found.directories == (Path("/b"), Path("/a"))
    found = read_controller(
        properties(tmp_path, metadata_log_dir="/m", advertised_listeners="CONTROLLER://k7.example:19093")
    )
    assert found.directories == (Path("/a"), Path("/b"), Path("/m"))
    assert found.address == ("k7.example", 19093)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"process_roles": "broker,controller"}, "process.roles is not controller"),
        ({"node_id": None}, "node.id is missing"),
        ({"node_id": "x"}, "invalid literal"),
        ({"log_dirs": None}, "log.dir is missing"),
        ({"listeners": "OTHER://h:1"}, "listeners has no CONTROLLER"),
        ({"listeners": "CONTROLLER://0.0.0.0:9093"}, "no host for CONTROLLER that brokers can dial"),
        ({"listeners": "CONTROLLER://:9093"}, "no host for CONTROLLER that brokers can dial"),
    ],
)
def test_what_brokers_could_not_follow_is_refused(
    tmp_path: Path, changes: dict[str, str | None], says: str
) -> None:
    with pytest.raises(InvalidRequest, match=says):
        read_controller(properties(tmp_path, **changes))
