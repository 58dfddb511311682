"""Pure: the tree of a state shows what GET /v1/state shows, and two trees differ where the states do."""

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import pytest

from metadata_log.ids import uuid_text
from metadata_log.image.metadata_image import EMPTY, MetadataImage
from metadata_log.image.views import state_json
from metadata_log.items import Items
from ops.shell.tree import (
    Directory,
    File,
    differences,
    escaped,
    matching,
    node_at,
    part_of,
    path_of,
    root,
    text_of,
    walk,
)
from tests.support.histories import history_of


def images() -> list[MetadataImage]:
    return [EMPTY, *(step.image for step in history_of(7, 120))]


def plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, Items | list | tuple):
        return [plain(each) for each in value]
    return value


def files_of(image: MetadataImage) -> dict[str, Any]:
    return {text_of(path): node.read() for path, node in walk(root(image)) if isinstance(node, File)}


def test_it_holds_every_entity_of_the_state() -> None:
    for image in images()[::15]:
        state, files = plain(state_json(image)), files_of(image)
        for kind, key in (("brokers", "broker_id"), ("controllers", "controller_id"), ("voters", "id")):
            assert {f"/{kind}/{one[key]}": one for one in state[kind]}.items() <= files.items()
        for topic in state["topics"]:
            below = f"/topics/{topic['name']}"
            assert files[f"{below}/topic_id"] == topic["topic_id"]
            for one in topic["partitions"]:
                assert files[f"{below}/partitions/{one['partition']}"] == one
            for name, value in topic["configs"].items():
                assert files[f"{below}/configs/{name}"] == value
        for one in state["configs"]:
            place = "/".join(map(escaped, (one["resource_type"], one["resource_name"], one["name"])))
            assert files[f"/configs/{place}"] == one
        for kind, key in (("users", "user"), ("tokens", "token_id")):
            assert {f"/{kind}/{escaped(one[key])}": one for one in state[kind]}.items() <= files.items()
        assert files["/provenance"]["end_offset"] == state["end_offset"]
        assert files["/next_producer_id"] == state["next_producer_id"]


def test_topics_of_one_name_that_were_deleted_are_files_each() -> None:
    images_with_deleted = [image for image in images() if image.topics.deleted]
    assert images_with_deleted
    for image in images_with_deleted:
        ids = {uuid_text(topic_id) for topic_id in image.topics.deleted}
        assert {path.split("/")[-1] for path in files_of(image) if path.startswith("/deleted_topics/")} == ids


def test_states_differ_where_their_files_do() -> None:
    some = images()
    for before, after in [*pairwise(some), (some[0], some[-1]), (some[-1], some[3])]:
        was, now = files_of(before), files_of(after)
        expected = {
            path: (was.get(path), now.get(path)) for path in was | now if was.get(path) != now.get(path)
        }
        found = {text_of(path): (old, new) for path, old, new in differences(root(before), root(after))}
        assert found == expected


def test_what_a_part_does_not_hold_is_no_change_of_it() -> None:
    some = images()
    for before, after in pairwise(some):
        for name in root(after).names():
            if part_of(before, (name,)) == part_of(after, (name,)):
                was, now = (node_at(root(image), (name,)) for image in (before, after))
                assert [*differences(was, now)] == []


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("", ("topics", "orders")),
        ("/", ()),
        ("..", ("topics",)),
        ("../../../..", ()),
        ("partitions//0/", ("topics", "orders", "partitions", "0")),
        ("/brokers/./11", ("brokers", "11")),
    ],
)
def test_a_path_is_seen_from_a_directory(text: str, path: tuple[str, ...]) -> None:
    assert path_of(text, below=("topics", "orders")) == path


@pytest.mark.parametrize(
    "wrong", ["nothing", "brokers/999", "topics/none", "provenance/deeper", "brokers/-1"]
)
def test_nothing_is_where_nothing_is(wrong: str) -> None:
    assert node_at(root(images()[-1]), path_of(wrong, below=())) is None


@pytest.mark.parametrize("number", ["00", "-1", "x", "9999", "²", ""])
def test_a_partition_has_one_name(number: str) -> None:
    image = next(image for image in reversed(images()) if image.topics.ids)
    topic = min(image.topics.ids)
    assert isinstance(node_at(root(image), ("topics", topic, "partitions", "0")), File)
    assert node_at(root(image), ("topics", topic, "partitions", number)) is None


def test_names_match_by_wildcards() -> None:
    image = next(image for image in reversed(images()) if image.topics.ids)
    every = [text_of(path) for path, _ in matching(root(image), ("topics", "*", "partitions", "0"))]
    assert every == [f"/topics/{name}/partitions/0" for name in sorted(image.topics.ids)]
    assert [*matching(root(image), ("topics", "no*such"))] == []
    (only,) = matching(root(image), ())
    assert only[0] == () and isinstance(only[1], Directory)


@pytest.mark.parametrize(
    ("name", "shown"), [("a/b", "a%2Fb"), ("", "<default>"), ("100%", "100%25"), ("x", "x")]
)
def test_a_name_is_one_step_of_a_path(name: str, shown: str) -> None:
    assert escaped(name) == shown
