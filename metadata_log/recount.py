"""Pure: a state's digest counted from nothing, and where two states of one offset differ.

The digest that is kept beside an image follows from what batches touched. Counted from the image itself, it shows what
changed in memory without a batch. Tests: tests/unit/metadata_log/test_recount.py.
"""

from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from typing import Final, NamedTuple

from metadata_log import limits
from metadata_log.digest import EMPTY_BUCKETS, Buckets, DigestBuilder
from metadata_log.ids import TopicId
from metadata_log.image.configs import line_of_shown_config
from metadata_log.image.metadata_image import MetadataImage, lines
from metadata_log.records.configs import ConfigRecord
from metadata_log.records.declaration import MASKS, told

_KEY_COLUMNS: Final[Mapping[str, int]] = {
    **dict.fromkeys(("b", "t", "d", "f", "v", "n", "a", "k"), 1),
    **dict.fromkeys(("p", "s", "u"), 2),
    "c": 3,
    **dict.fromkeys(("i", "q"), 0),
}
"""By the letter with which a line begins: how many columns after it name the entity; of another letter, one."""


class FirstDifference(NamedTuple):
    """One line that differs: the entity's key as text, and its lines, None where the state has none."""

    key: str
    here: str | None
    there: str | None


class Recount:
    """Counts an image's digest a part at a time, for those that share a loop with others."""

    def __init__(self, image: MetadataImage) -> None:
        self._lines = lines(image)
        self._digest = DigestBuilder(EMPTY_BUCKETS)

    def count_some(self) -> bool:
        """Count some lines; answer whether there may be more."""
        some, has_more = _part_of(self._lines)
        self._digest.add_all(some)
        return has_more

    def buckets(self) -> Buckets:
        return self._digest.buckets()


class LinesOfBucket:
    """Gathers the lines of an image that fall into one bucket, a part at a time."""

    def __init__(self, image: MetadataImage, bucket: int) -> None:
        self._lines = lines(image)
        self._bucket = bucket
        self.found: list[str] = []

    def find_some(self) -> bool:
        """Look at some lines; answer whether there may be more."""
        some, has_more = _part_of(self._lines)
        self.found += [line for line in some if bucket_of(line) == self._bucket]
        return has_more


def _part_of(some: Iterator[str]) -> tuple[list[str], bool]:
    """Take a part of some lines, bounded in number and bytes; return it, and whether there may be more."""
    part: list[str] = []
    left = limits.LINES_BYTES_COUNTED_AT_ONCE
    for line in some:
        part.append(line)
        left -= len(line)
        if left <= 0 or len(part) == limits.LINES_COUNTED_AT_ONCE:
            return part, True
    return part, False


def bucket_of(line: str) -> int:
    return sha256(line.encode()).digest()[0]


def lines_of_bucket(image: MetadataImage, bucket: int) -> list[str]:
    """Return the lines of an image that fall into one bucket, in order."""
    return sorted(line for line in lines(image) if bucket_of(line) == bucket)


def differing_buckets(here: Buckets, there: Buckets) -> Iterator[int]:
    """Yield the numbers of the buckets that differ."""
    return (number for number, (mine, theirs) in enumerate(zip(here, there, strict=True)) if mine != theirs)


def first_difference(
    here: Iterable[str], there: Iterable[str], image: MetadataImage
) -> FirstDifference | None:
    """Return the first entity, in order of keys, of which only one of two states has this line; None: there is none.

    A line that changed falls into two buckets, so the other state's line may be missing here.
    """
    mine, theirs = set(here), set(there)
    differing = sorted(mine ^ theirs, key=_key_of)
    if not differing:
        return None
    key = _key_of(differing[0])
    own = next((line for line in differing if line in mine and _key_of(line) == key), None)
    other = next((line for line in differing if line in theirs and _key_of(line) == key), None)
    return FirstDifference(_named(key, image), own and told_line(own), other and told_line(other))


def told_line(line: str) -> str:
    """Return a line as logs and answers show it: a secret setting whose record has no mask key is masked, too."""
    if not line.startswith("c|"):
        return line
    try:
        _, resource_type, resource_name, name, value = line.split("|")
        setting = ConfigRecord(int(resource_type), _text(resource_name), _text(name), _text(value))
    except ValueError:  # of no form that is known here, as another node's may be
        return "|".join(_key_of(line))
    if setting.value is None or setting.value.startswith(MASKS):
        return line
    return line_of_shown_config(told(setting))


def _key_of(line: str) -> tuple[str, ...]:
    letter, *columns = line.split("|")
    return (letter, *columns[: _KEY_COLUMNS.get(letter, 1)])


_RESOURCES: Final[Mapping[str, str]] = {"2": "topic", "4": "broker", "16": "client metrics", "32": "group"}
_KINDS: Final[Mapping[str, str]] = {
    "b": "broker",
    "t": "topic",
    "d": "deleted topic",
    "p": "partition",
    "c": "config",
    "f": "feature",
    "i": "producer ids",
    "s": "credential of user",
    "u": "quota",
    "q": "kraft.version",
    "v": "voter",
    "n": "controller",
    "a": "acl",
    "k": "delegation token",
}


def _named(key: tuple[str, ...], image: MetadataImage) -> str:
    """Return a key for people; as it is where it is of no form that is known here, as another node's may be."""
    try:
        return _in_words(key, image)
    except (ValueError, IndexError):
        return "|".join(key)


def _in_words(key: tuple[str, ...], image: MetadataImage) -> str:
    """Return a key in words: partitions and topics by the topic's name, text as it was before it became hex."""
    letter, *columns = key
    kind = _KINDS.get(letter, letter)
    if letter in ("t", "d", "p"):
        topic = image.topics.known(TopicId(bytes.fromhex(columns[0])))
        columns[0] = columns[0] if topic is None else topic.name
        return f"{kind} {':'.join(columns)}"
    if letter == "c":
        resource_type, resource_name, name = columns[0], *map(_text, columns[1:])
        of = _RESOURCES.get(resource_type, resource_type)
        columns = [f"{of} {resource_name}" if resource_name else "cluster", name]
    elif letter in ("f", "k"):
        columns = [_text(column) for column in columns]
    elif letter == "s":
        columns[0] = _text(columns[0])
    return f"{kind} {' '.join(columns)}".rstrip()


def _text(column: str) -> str:
    """Return the text of a column in hex."""
    return bytes.fromhex(column).decode(errors="replace")
