"""Pure: writes the values of a schema.

A schema and a version make a writer once, as Python source, in the way of `NamedTuple`: a commit may hold 10,000 records of
partitions, and a function per field would take three times as long for them. Neighbours of fixed size, and arrays of such
items, are one `struct`, chosen by the lengths of the arrays. Tests: tests/unit/metadata_log/kafka/test_records.py.
"""

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from metadata_log.kafka.reading import FIXED
from metadata_log.kafka.schemas import Field, Form

V = TypeVar("V")
Write: TypeAlias = Callable[[Sequence[Any]], bytes]

SHAPES_MAX: Final = 4096
"""Structs that a writer keeps, by the lengths of arrays: clusters have a few dozen combinations."""
NUMBERS_MAX: Final = 16_384
"""Numbers whose varints are kept, 2 MB at most: places in a batch, which has up to 10,000 records, and lengths."""


def uvarint_bytes(value: int) -> bytes:
    """Return an unsigned varint, seven bits a byte, the lowest first."""
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*found, value))


class Kept(dict[Any, V]):
    """Makes the value of a key that it lacks, and keeps up to `most`."""

    def __init__(self, make: Callable[[Any], V], most: int) -> None:
        super().__init__()
        self._make, self._most = make, most

    def __missing__(self, key: Any) -> V:
        value = self._make(key)
        if len(self) >= self._most:
            self.clear()
        self[key] = value
        return value


UVARINTS: Final = Kept(uvarint_bytes, NUMBERS_MAX)
"""By number: it as an unsigned varint."""
VARINTS: Final = Kept(lambda value: uvarint_bytes((value << 1) ^ (value >> 63)), NUMBERS_MAX)
"""By number: it as a varint in zigzag."""


class _Lengths(NamedTuple):
    """By length: how it begins an array, a text or bytes; -1 is null."""

    array: Kept[bytes]
    text: Kept[bytes]
    data: Kept[bytes]


_COMPACT: Final = Kept(lambda length: uvarint_bytes(length + 1), NUMBERS_MAX)
_INT16: Final = Kept(struct.Struct(">h").pack, NUMBERS_MAX)
_INT32: Final = Kept(struct.Struct(">i").pack, NUMBERS_MAX)
_FLEXIBLE: Final = _Lengths(_COMPACT, _COMPACT, _COMPACT)
_OLD: Final = _Lengths(_INT32, _INT16, _INT32)


def _lengths(field: Field, form: Form) -> _Lengths:
    return _FLEXIBLE if form.is_flexible and field.is_flexible else _OLD


class Source(NamedTuple):
    """Where a writer finds the value of a field in what it is given, and how that becomes Kafka's.

    `place` None: the value is always `absent`. A value that equals `absent` says the field's default; others are converted.
    """

    place: int | None
    absent: Any = None
    convert: Callable[[Any], Any] | None = None


def writer(
    fields: Sequence[Field], form: Form, *, head: bytes = b"", sources: Sequence[Source] | None = None
) -> Write:
    """Return what writes the values of a structure in a form, after the bytes `head`.

    `sources` say where the value of each field is found in the tuple that the writer is given; None: in the order of the
    fields. The writer raises ValueError where a field that the version lacks has a value that would be lost.
    """
    if sources is None:
        sources = [Source(place, field.default) for place, field in enumerate(fields)]
    made = _Source(form, head)
    for field, source in zip(fields, sources, strict=True):
        made.add(field, source)
    return made.function()


class _Source:
    """The source of a writer while it is made: its lines, and the objects that they name."""

    def __init__(self, form: Form, head: bytes) -> None:
        self._form, self._version = form, form.version
        self._lines: list[str] = []
        self._names: dict[str, Any] = {
            "COUNTS": (_FLEXIBLE if form.is_flexible else _OLD).array,
            "UVARINTS": UVARINTS,
            "join": b"".join,
        }
        self._pieces: list[str] = []
        """Expressions of bytes, in order."""
        self._tags: list[tuple[int, list[str]]] = []
        self._run: list[str] = [repr(head)] if head else []
        """Expressions for the next struct."""
        self._forms: list[str] = [f"{len(head)}s"] if head else []
        self._lengths: list[str] = []
        """Of the arrays in it; each has a {} in a form."""

    def add(self, field: Field, source: Source) -> None:
        value = self._value(field, source)
        if self._version not in field.versions:
            if source.place is not None and not field.is_ignorable:
                self._refuse(field, source)
        elif self._version in field.tagged:
            self._tag(field, source, value)
        elif field.kind in FIXED and not field.is_array:
            self._run.append(value)
            self._forms.append(FIXED[field.kind])
        elif field.kind in FIXED and self._version not in field.nullable:
            self._array(field.kind, value)
        elif field.kind == "string" and not field.is_array and self._version not in field.nullable:
            self._end_run()
            name, lengths = f"a{len(self._lines)}", self._named(_lengths(field, self._form).text)
            self._lines.append(f"{name} = {value}.encode()")
            self._pieces += [f"{lengths}[len({name})]", name]
        else:
            self._end_run()
            self._pieces.append(self._one(field, value))

    def function(self) -> Write:
        self._end_run()
        if self._tags:
            self._lines.append("count, tags = 0, b''")
            for _, lines in sorted(self._tags):
                self._lines += lines
            self._pieces += ["UVARINTS[count]", "tags"]
        elif self._form.is_flexible:
            self._pieces.append(r"b'\0'")
        pieces = ", ".join(self._pieces or ["b''"])
        body = "\n    ".join([*self._lines, f"return join(({pieces},))"])
        exec(f"def write(v):\n    {body}", self._names)  # noqa: S102 from the table of schemas alone
        write: Write = self._names["write"]
        return write

    def _named(self, thing: Any) -> str:
        name = f"n{len(self._names)}"
        self._names[name] = thing
        return name

    def _value(self, field: Field, source: Source) -> str:
        if source.place is None:
            return self._named(field.default if source.absent is None else source.absent)
        at = f"v[{source.place}]"
        return at if source.convert is None else f"{self._named(source.convert)}({at})"

    def _absent(self, source: Source) -> str:
        """Return the condition under which a field is not at its default."""
        at = f"v[{source.place}]"
        return f"{at} is not None" if source.absent is None else f"{at} != {self._named(source.absent)}"

    def _refuse(self, field: Field, source: Source) -> None:
        self._lines.append(
            f"if {self._absent(source)}: raise ValueError('version {self._version} lacks the field {field.name}')"
        )

    def _array(self, kind: str, value: str) -> None:
        """Add an array whose items have a fixed size to the struct."""
        name = f"a{len(self._lines)}"
        self._lines.append(f"{name} = {value}")
        self._lengths.append(f"len({name})")
        items = f"join({name})" if kind == "uuid" else f"*{name}"
        self._run += [f"COUNTS[len({name})]", items]
        self._forms.append("{" + ("16s" if kind == "uuid" else FIXED[kind]) + "}")

    def _end_run(self) -> None:
        forms, run, lengths = tuple(self._forms), self._run, self._lengths
        self._forms, self._run, self._lengths = [], [], []
        if not run:
            return
        if not lengths:
            pack = self._named(struct.Struct(">" + "".join(forms)).pack)
        else:
            shapes = self._named(Kept(partial(_packs, forms, self._names["COUNTS"]), SHAPES_MAX))
            pack = f"{shapes}[{', '.join(lengths)},]"
        self._pieces.append(f"{pack}({', '.join(run)})")

    def _tag(self, field: Field, source: Source, value: str) -> None:
        assert field.tag is not None
        assert source.place is not None, "a tagged field that is always the same"
        if field.kind in FIXED and field.kind != "uuid":
            make = partial(_packs_tag, field.tag, FIXED[field.kind])
            if field.is_array:
                packed = f"{self._named(Kept(make, SHAPES_MAX))}[len({value})](*{value})"
            else:
                packed = f"{self._named(make(None))}({value})"
        else:
            packed = f"{self._named(partial(_sized, uvarint_bytes(field.tag)))}({self._one(field, value)})"
        self._tags.append((field.tag, [f"if {self._absent(source)}: count += 1; tags += {packed}"]))

    def _one(self, field: Field, value: str) -> str:
        """Return the expression of a value's bytes."""
        if self._version in field.nullable:
            # A structure that may be null would begin with a byte of its own, which no record needs.
            assert field.is_array or field.kind != "struct"
            write, null = self._named(_writes(field, self._form)), self._named(_null(field, self._form))
            return f"({null} if {value} is None else {write}({value}))"
        return f"{self._named(_writes(field, self._form))}({value})"


def _packs(
    forms: Sequence[str], counts: Mapping[int, bytes], lengths: tuple[int, ...]
) -> Callable[..., bytes]:
    """Return what packs a run whose arrays have these lengths."""
    left = iter(lengths)
    return struct.Struct(">" + "".join(_form(form, counts, left) for form in forms)).pack


def _form(form: str, counts: Mapping[int, bytes], lengths: Iterator[int]) -> str:
    if not form.startswith("{"):
        return form
    length, item = next(lengths), form[1:-1]
    items = f"{16 * length}s" if item == "16s" else f"{length}{item}"
    return f"{len(counts[length])}s{items}"


def _packs_tag(tag: int, form: str, length: int | None) -> Callable[..., bytes]:
    """Return what packs a tagged number, or an array of a length, with its tag and size."""
    count = b"" if length is None else _COMPACT[length]
    form = form if length is None else f"{length}{form}"
    head = uvarint_bytes(tag) + uvarint_bytes(len(count) + struct.calcsize(f">{form}")) + count
    return partial(struct.Struct(f">{len(head)}s{form}").pack, head)


def _sized(tag: bytes, content: bytes) -> bytes:
    return tag + UVARINTS[len(content)] + content


def _null(field: Field, form: Form) -> bytes:
    lengths = _lengths(field, form)
    return (lengths.array if field.is_array else lengths.text if field.kind == "string" else lengths.data)[-1]


def _writes(field: Field, form: Form) -> Callable[[Any], bytes]:
    """Return what writes a value that is not null."""
    lengths = _lengths(field, form)
    if field.is_array and field.kind == "uuid":
        return lambda uuids: lengths.array[len(uuids)] + b"".join(uuids)
    if field.is_array:
        of = _writes(field._replace(is_array=False), form)
        return lambda items: lengths.array[len(items)] + b"".join(map(of, items))
    match field.kind:
        case "struct":
            return writer(field.fields, form)
        case "string":
            return partial(_writes_text, lengths.text)
        case "bytes" | "records":
            return lambda data: lengths.data[len(data)] + data
        case fixed:
            return struct.Struct(">" + FIXED[fixed]).pack


def _writes_text(lengths: Mapping[int, bytes], text: str) -> bytes:
    data = text.encode()
    return lengths[len(data)] + data
