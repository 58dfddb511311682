"""A takeover is whole or none: a crash at any step leaves no directory with which half of it could be in use."""

import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from metadata_log.digest import digest
from metadata_log.errors import DirectoryInUse, ForeignDirectory, InvalidRequest
from metadata_log.ids import BrokerId
from metadata_log.node.disk.data_directory import DirectoryLock, format_directory, is_fresh, only_joins
from metadata_log.records.features import METADATA_VERSION, METAQUORUM_VERSION, METAQUORUM_VERSION_LEVEL
from ops.takeover import taking_over
from ops.takeover.kafka_state import KafkaState, kafka_state
from ops.takeover.taking_over import (
    OFFSETS_SKIPPED,
    begun_with,
    check_may_take_over,
    take_over,
)
from quorum.node.config import ControllerSettings, FeatureSettings
from quorum.node.restoring import EPOCHS_SKIPPED, surviving_state
from tests.support.kafka_log import batch, broker, feature, leader_change, partition, topic, written
from tests.support.lab import settings, uuid

CLUSTER_ID = "HandWrittenHandWritten"
RECORDS = [
    feature("metadata.version", 30),
    feature("group.version", 1),
    broker(11, 3),
    topic("orders", bytes([1]) * 16),
    partition(bytes([1]) * 16, 0, [11]),
]
IDS = (1, 2, 3)


def kafka(directory: Path, *more: bytes) -> KafkaState:
    first = batch(0, [leader_change(1, (1,))], control=2)
    written(directory / "kafka", [first, batch(1, [*RECORDS, *more])])
    return kafka_state([directory / "kafka"], rng=random.Random(1))


def ours(directory: Path, *ids: int) -> list[ControllerSettings]:
    return [
        replace(
            settings(node_id, kafka=True),
            cluster_id=CLUSTER_ID,
            data_dir=directory / f"controller-{node_id}",
            listen_kafka=("127.0.0.1", 9200 + node_id),
        )
        for node_id in ids or IDS
    ]


def formatted(controller: ControllerSettings) -> None:
    format_directory(
        controller.data_dir,
        role="controller",
        node_id=controller.node_id,
        cluster_id=CLUSTER_ID,
        rng=random.Random(1),
        directory_id=uuid(500 + controller.node_id),
    )


# --- the state


def test_it_goes_on_above_all_that_brokers_have_seen(tmp_path: Path) -> None:
    state = kafka(tmp_path)._replace(epoch=7)
    image, lost = begun_with(state, ours(tmp_path))
    assert image.end_offset == state.image.end_offset + OFFSETS_SKIPPED == 6 + OFFSETS_SKIPPED
    assert image.controller_epoch == 7 + EPOCHS_SKIPPED
    assert [voter.node_id for voter in image.quorum.voters or ()] == [1, 2, 3]
    assert (image.quorum.cluster_id, image.quorum.kraft_version) == (CLUSTER_ID, 1)
    assert dict(image.features) == {
        METADATA_VERSION: 30,
        "group.version": 1,
        METAQUORUM_VERSION: METAQUORUM_VERSION_LEVEL,
    }
    assert (image.brokers, image.topics) == (state.image.brokers, state.image.topics)
    assert not image.controllers and not lost


def test_a_feature_that_we_do_not_know_is_lost_and_named(tmp_path: Path) -> None:
    state = kafka(tmp_path, feature("newer.version", 2), feature("group.version", 9))
    image, lost = begun_with(state, ours(tmp_path))
    assert lost == {"feature newer.version at level 2": 1, "feature group.version at level 9": 1}
    assert {*image.features} == {METADATA_VERSION, METAQUORUM_VERSION}


def test_a_level_that_we_do_not_know_is_refused(tmp_path: Path) -> None:
    state = kafka(tmp_path, feature("metadata.version", 31))
    with pytest.raises(InvalidRequest, match=r"metadata\.version is 31, and this release knows 7 to 30"):
        begun_with(state, ours(tmp_path))
    unstable = [replace(each, features=FeatureSettings(unstable_levels=True)) for each in ours(tmp_path)]
    assert begun_with(state, unstable).image.features[METADATA_VERSION] == 31


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"cluster_id": "B" * 22}, "is of cluster HandWrittenHandWritten, and controller 1 of BBBB"),
        ({"listen_kafka": None}, "has no .listen. kafka"),
        ({"node_id": BrokerId(11)}, "id 11 is a broker's"),
        ({"voters": ()}, "controller 1 has no ..voters.. entry"),
    ],
)
def test_settings_that_the_brokers_could_not_follow_are_refused(
    tmp_path: Path, change: dict[str, Any], says: str
) -> None:
    controllers = [replace(ours(tmp_path)[0], **change), *ours(tmp_path)[1:]]
    with pytest.raises(InvalidRequest, match=says):
        begun_with(kafka(tmp_path), controllers)


def test_a_controller_is_named_once(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="two of the settings are of one controller"):
        begun_with(kafka(tmp_path), ours(tmp_path, 1, 1))


# --- the directories


def test_all_directories_are_alike(tmp_path: Path) -> None:
    """Goal: the voters' logs begin with one snapshot, byte for byte. Method: one was formatted before, two were not."""
    controllers = ours(tmp_path)
    formatted(controllers[0])
    image = begun_with(kafka(tmp_path), controllers).image
    assert take_over(image, controllers) is image
    assert all_are_whole(controllers, image) == 3
    files = [next((each.data_dir / "snapshots").glob("*.snapshot")) for each in controllers]
    assert len({(file.name, file.read_bytes()) for file in files}) == 1
    pointers = [each.data_dir / "journal" / "snapshot" for each in controllers]
    assert len({path.read_bytes() for path in pointers if path.exists()}) <= 1
    assert sorted(path.name for path in tmp_path.iterdir()) == [*(f"controller-{n}" for n in IDS), "kafka"]


def all_are_whole(controllers: list[ControllerSettings], image: Any) -> int:
    """Check that each directory is unused or holds all of the state; return how many hold it."""
    whole = 0
    for each in controllers:
        if not each.data_dir.exists() or is_fresh(each.data_dir):
            continue
        assert digest(surviving_state(each.data_dir).image) == digest(image)
        whole += 1
    return whole


STEPS: dict[str, tuple[Any, str]] = {
    "format": (taking_over, "format_directory"),
    "begin": (taking_over, "begin_directory"),
    "sync": (taking_over, "sync_directory"),
    "rename": (Path, "rename"),
    "remove": (shutil, "rmtree"),
}


@pytest.mark.slow
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("at", [1, 2, 3])
@pytest.mark.parametrize("step", STEPS)
def test_a_crash_at_any_step_leaves_all_or_nothing_and_is_made_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, at: int, when: str
) -> None:
    """Method: the call ends before or after one of its steps, on one of three controllers, and is made once more."""
    controllers = ours(tmp_path)
    for each in controllers:
        formatted(each)
    image = begun_with(kafka(tmp_path), controllers).image
    kafkas = {path: path.read_bytes() for path in (tmp_path / "kafka").rglob("*") if path.is_file()}
    owner, name = STEPS[step]
    shipped: Callable[..., object] = getattr(owner, name)
    calls = 0

    def crashes(*given: Any, **more: Any) -> object:
        nonlocal calls
        calls += 1
        if calls != at:
            return shipped(*given, **more)
        if when == "after":
            shipped(*given, **more)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, crashes)
        with pytest.raises(KeyboardInterrupt):
            take_over(image, controllers)
    assert all_are_whole(controllers, image) < 3 or step in ("sync", "remove", "rename")
    left = [each.data_dir for each in controllers if each.data_dir.exists() and is_fresh(each.data_dir)]
    assert all(map(only_joins, left)), "what is not whole founds no quorum"
    again = begun_with(kafka_again(tmp_path), controllers).image
    begun = take_over(again, controllers)
    assert all_are_whole(controllers, begun) == 3
    assert kafkas == {path: path.read_bytes() for path in (tmp_path / "kafka").rglob("*") if path.is_file()}


def kafka_again(directory: Path) -> KafkaState:
    return kafka_state([directory / "kafka"], rng=random.Random(2))


def test_what_an_interrupted_call_finished_stays(tmp_path: Path) -> None:
    """Goal: keys of masks are drawn once. Method: the first directory is whole, and the keys of the next call differ."""
    controllers = ours(tmp_path)
    first = begun_with(kafka(tmp_path), controllers).image
    take_over(first, controllers)
    for each in controllers[1:]:
        shutil.rmtree(each.data_dir)
    other = replace(first, last_time_ms=first.last_time_ms + 1)
    assert check_may_take_over(controllers, other).last_time_ms == first.last_time_ms
    assert take_over(other, controllers).last_time_ms == first.last_time_ms
    assert all_are_whole(controllers, first) == 3


@pytest.mark.parametrize("change", ["end_offset", "controller_epoch"])
def test_another_state_is_not_mixed_with_the_first(tmp_path: Path, change: str) -> None:
    controllers = ours(tmp_path)
    image = begun_with(kafka(tmp_path), controllers).image
    take_over(image, controllers)
    other = replace(image, **{change: getattr(image, change) + 1})
    with pytest.raises(ForeignDirectory, match="another state was put into it"):
        take_over(other, controllers)


def test_what_is_not_a_fresh_directory_stays(tmp_path: Path) -> None:
    controllers = ours(tmp_path)
    image = begun_with(kafka(tmp_path), controllers).image
    formatted(controllers[1])
    kept = controllers[1].data_dir / "controller.toml"
    kept.write_text("mine")
    with pytest.raises(ForeignDirectory, match=r"holds controller\.toml, and is replaced as a whole"):
        take_over(image, controllers)
    kept.unlink()
    with DirectoryLock(controllers[1].data_dir), pytest.raises(DirectoryInUse):
        take_over(image, controllers)
    wrong = [*controllers[:1], replace(controllers[1], voters=settings(1, kafka=True).voters)]
    (other,) = (each for each in wrong[1].voters if each.id == 2)
    changed = replace(other, directory_id=uuid(77))
    wrong[1] = replace(wrong[1], voters=tuple(changed if each is other else each for each in wrong[1].voters))
    with pytest.raises(ForeignDirectory, match="correct the entry"):
        take_over(image, wrong)
    assert not controllers[0].data_dir.exists(), "all are checked before any is written"


def test_an_empty_directory_is_filled(tmp_path: Path) -> None:
    controllers = ours(tmp_path, 1)
    controllers[0].data_dir.mkdir()
    image = begun_with(kafka(tmp_path), controllers).image
    take_over(image, controllers)
    assert all_are_whole(controllers, image) == 1
    assert controllers[0].data_dir.stat().st_mode & 0o777 == 0o700


def test_two_controllers_have_two_directories(tmp_path: Path) -> None:
    """Method: one is named through a link."""
    controllers = ours(tmp_path)
    (tmp_path / "link").symlink_to(controllers[0].data_dir)
    image = begun_with(kafka(tmp_path), controllers).image
    controllers[2] = replace(controllers[2], data_dir=tmp_path / "link")
    with pytest.raises(InvalidRequest, match="controller-1: is named for two directories"):
        check_may_take_over(controllers, image)
    with pytest.raises(InvalidRequest, match="controller-1: is named for two directories"):
        take_over(image, controllers)
    assert not any(each.data_dir.exists() for each in controllers), "all are checked before any is written"


@pytest.mark.parametrize("is_formatted", [True, False])
def test_a_link_stays_and_its_directory_is_made(tmp_path: Path, is_formatted: bool) -> None:
    controllers = ours(tmp_path, 1)
    link, there = controllers[0].data_dir, tmp_path / "disk" / "data"
    there.mkdir(parents=True)
    link.symlink_to(there)
    if is_formatted:
        formatted(controllers[0])
    image = begun_with(kafka(tmp_path), controllers).image
    take_over(image, controllers)
    assert link.is_symlink() and link.resolve() == there
    assert all_are_whole(controllers, image) == 1
    assert [path.name for path in there.parent.iterdir()] == ["data"]
