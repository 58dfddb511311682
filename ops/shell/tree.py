"""Pure: a state as a tree of directories and files, by the names of GET /v1/state.

An entity is a file: a broker, a partition, a setting. A topic is a directory, since its partitions are entities too. A
directory makes what it holds when it is asked for it, so that a path costs what it leads to and not the whole state.
"""

import fnmatch
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from metadata_log.ids import uuid_text
from metadata_log.image.configs import shown_settings
from metadata_log.image.metadata_image import EMPTY, SUBJECT_BUILDERS, MetadataImage
from metadata_log.image.partitions import describe_partition
from metadata_log.image.subject import SubjectBuilder
from metadata_log.image.topics import TopicImage, list_deleted
from metadata_log.items import Items
from metadata_log.records.configs import TOPIC

Path: TypeAlias = tuple[str, ...]
"""The names from the root on."""


@dataclass(frozen=True, slots=True)
class File:
    """An entity, or a value of the state."""

    of: object
    """The immutable value that it shows: files of equal values are equal."""
    read: Callable[[], Any]
    """Makes its value, as JSON has it."""


@dataclass(frozen=True, slots=True)
class Directory:
    """Named nodes."""

    of: object
    """The immutable value that it shows: directories of equal values are equal."""
    names: Callable[[], Iterable[str]]
    """Yields them in their order."""
    child: "Callable[[str], Node | None]"


Node: TypeAlias = File | Directory

_KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    "brokers": ("broker_id",),
    "configs": ("resource_type", "resource_name", "name"),
    "controllers": ("controller_id",),
    "deleted_topics": ("name", "topic_id"),
    "tokens": ("token_id",),
    "users": ("user",),
    "voters": ("id",),
}
"""By the name of a list: the fields that name an item there, a directory for each but the last."""
_IDENTITIES: Final = ("id", "name")
"""The fields that name an item of any other list, if it has one."""
_OWNERS: Final[Mapping[str, type[SubjectBuilder[Any]]]] = {
    name: builder for builder in SUBJECT_BUILDERS for name in builder.view(getattr(EMPTY, builder.FIELD))
}
"""By the names of GET /v1/state: whose view has them."""
_WITHOUT_OWNER: Final = ("deleted_topics", "provenance")
_UNNAMED: Final = "<default>"
"""The empty name, which a setting of all brokers has; Kafka's tools show it so."""


def root(image: MetadataImage) -> Directory:
    """Return the tree of a state."""

    def child(name: str) -> Node | None:
        part = part_of(image, (name,))
        match name:
            case "provenance":
                return _provenance(image)
            case "topics":
                return _topics(image)
            case "deleted_topics":
                return _value(name, part, lambda: _deleted(image))
        builder = _OWNERS.get(name)
        return None if builder is None else _value(name, part, lambda: builder.view(part)[name])

    return Directory(image, lambda: sorted([*_OWNERS, *_WITHOUT_OWNER]), child)


def part_of(image: MetadataImage, path: Path) -> object:
    """Return the part of a state that a path leads into: what two states share there is the same object."""
    match path[:1]:
        case ("topics",):
            return (image.topics.by_id, image.configs)
        case ("deleted_topics",):
            return image.topics.deleted
        case (name,) if name in _OWNERS:
            return getattr(image, _OWNERS[name].FIELD)
    return image


def _deleted(image: MetadataImage) -> list[dict[str, Any]]:
    """Return the topics that can be restored, without the time left: it passes while nothing changes."""
    rows = list_deleted(image.topics, elapsed_ms=image.elapsed_ms)
    return [{key: value for key, value in row.items() if key != "left_ms"} for row in rows]


def _provenance(image: MetadataImage) -> File:
    place = {
        "end_offset": image.end_offset,
        "controller_epoch": image.controller_epoch,
        "time_ms": image.last_time_ms,
    }
    return File(tuple(place.values()), lambda: place)


def _topics(image: MetadataImage) -> Directory:
    topics, configs = image.topics, image.configs

    def child(name: str) -> Node | None:
        topic = topics.named(name)
        return None if topic is None else _topic(topic, configs.get((TOPIC, name)) or {})

    return Directory(part_of(image, ("topics",)), lambda: sorted(topics.ids), child)


def _topic(topic: TopicImage, settings: Mapping[str, str]) -> Directory:
    def child(name: str) -> Node | None:
        match name:
            case "topic_id":
                return File(topic.topic_id, lambda: uuid_text(topic.topic_id))
            case "configs":
                return _value(name, settings, lambda: shown_settings(TOPIC, settings))
            case "partitions":
                return _partitions(topic)
        return None

    return Directory((topic, settings), lambda: ("configs", "partitions", "topic_id"), child)


def _partitions(topic: TopicImage) -> Directory:
    def child(name: str) -> Node | None:
        if not name.isdecimal() or str(int(name)) != name or int(name) >= len(topic.partitions):
            return None
        number = int(name)
        partition = topic.partitions[number]
        return File(partition, lambda: describe_partition(number, partition))

    return Directory(topic.partitions, lambda: map(str, range(len(topic.partitions))), child)


def _value(name: str, of: object, read: Callable[[], Any]) -> Node:
    """Return a value of the state as a node: a map of values and a list of entities are directories."""
    value = read()
    if isinstance(value, Mapping):
        return _mapping(of, value)
    if isinstance(value, Items | list | tuple):
        return _entities(of, list(value), _KEYS.get(name, ()))
    return File(of if of is not None else value, lambda: value)


def _mapping(of: object, values: Mapping[str, Any]) -> Directory:
    named = {escaped(str(key)): value for key, value in values.items()}

    def child(name: str) -> Node | None:
        return File(named[name], lambda: named[name]) if name in named else None

    return Directory(of, lambda: sorted(named), child)


def _entities(of: object, items: list[Any], keys: tuple[str, ...]) -> Directory:
    """Return a directory of entities under the first of `keys`, and of directories where there are further ones."""
    grouped: dict[str, list[Any]] = {}
    for number, item in enumerate(items):
        grouped.setdefault(_name(item, keys, number), []).append(item)

    def child(name: str) -> Node | None:
        found = grouped.get(name)
        if found is None:
            return None
        if len(keys) > 1:
            return _entities((of, name), found, keys[1:])
        return File(found[0], lambda: found[0])

    return Directory(of, lambda: grouped, child)


def _name(item: Any, keys: tuple[str, ...], number: int) -> str:
    fields = item if isinstance(item, Mapping) else {}
    if not keys and "entity" in fields:
        named = (f"{part['entity_type']}={part['entity_name'] or _UNNAMED}" for part in fields["entity"])
        return escaped(",".join(named))
    key = keys[0] if keys else next((key for key in _IDENTITIES if key in fields), None)
    return escaped(str(number if key is None else fields[key]))


def escaped(name: str) -> str:
    """Return a name as a path has it: without a slash, and never empty."""
    return name.replace("%", "%25").replace("/", "%2F") or _UNNAMED


# --- paths


def path_of(text: str, *, below: Path) -> Path:
    """Return the path that `text` names, seen from the directory `below`: `/` begins at the root, `..` goes up."""
    path: list[str] = [] if text.startswith("/") else [*below]
    for name in text.split("/"):
        if name == "..":
            del path[-1:]
        elif name not in ("", "."):
            path.append(name)
    return tuple(path)


def text_of(path: Path) -> str:
    return "/" + "/".join(path)


def node_at(tree: Node, path: Path) -> Node | None:
    """Return the node at a path; None where nothing is."""
    node: Node | None = tree
    for name in path:
        node = node.child(name) if isinstance(node, Directory) else None
        if node is None:
            return None
    return node


def matching(tree: Node, pattern: Path) -> Iterator[tuple[Path, Node]]:
    """Yield the nodes whose paths match, name by name, with `*`, `?` and `[...]` as in a shell."""
    yield from _matching(tree, pattern, ())


def _matching(node: Node, pattern: Path, path: Path) -> Iterator[tuple[Path, Node]]:
    if len(path) == len(pattern):
        yield path, node
        return
    if not isinstance(node, Directory):
        return
    wanted = pattern[len(path)]
    is_literal = not any(letter in wanted for letter in "*?[")
    for name in (wanted,) if is_literal else fnmatch.filter(node.names(), wanted):
        child = node.child(name)
        if child is not None:
            yield from _matching(child, pattern, (*path, name))


def walk(node: Node, path: Path = (), *, depth: int | None = None) -> Iterator[tuple[Path, Node]]:
    """Yield a node and all below it, each directory before what it holds, down to `depth` levels (None: all)."""
    yield path, node
    if isinstance(node, Directory) and depth != 0:
        for name in node.names():
            child = node.child(name)
            if child is not None:
                yield from walk(child, (*path, name), depth=None if depth is None else depth - 1)


def differences(before: Node | None, after: Node | None, path: Path = ()) -> Iterator[tuple[Path, Any, Any]]:
    """Yield the path of each file that differs, with its values before and after; None where it was not, or is no more.

    What both states share is not looked into.
    """
    if isinstance(before, Directory) and isinstance(after, Directory):
        if before.of == after.of:
            return
        old, new = dict.fromkeys(before.names()), dict.fromkeys(after.names())
        for name in old | new:
            yield from differences(
                before.child(name) if name in old else None,
                after.child(name) if name in new else None,
                (*path, name),
            )
        return
    if isinstance(before, File) and isinstance(after, File):
        if before.of != after.of and (values := (before.read(), after.read()))[0] != values[1]:
            yield path, *values
        return
    for node, is_before in ((before, True), (after, False)):
        for below, each in walk(node, path) if node is not None else ():
            if isinstance(each, File):
                value = each.read()
                yield (below, value, None) if is_before else (below, None, value)
