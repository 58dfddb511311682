"""Pure: what the shapes of answers over HTTP have in common. Tests: tests/unit/quorum/http/test_openapi.py."""

from typing import Any, Literal, NotRequired, TypedDict


class Offsets(TypedDict):
    """Where a write's records lie, end exclusive; one that wrote nothing has base = end."""

    base: int
    end: int


class Error(TypedDict):
    error: str
    code: int
    family: Literal["Rejected", "Unavailable", "OutcomeUnknown", "Fault"]
    message: str
    retryable: bool
    controller_id: int
    controller_epoch: int


class RecordForeseen(TypedDict):
    type: str
    record: dict[str, Any]


class Foreseen(TypedDict):
    """What a change that is only tried out would write: how many records, the first of them, and their topics' names by id;
    `more`: these are the records of its first part.
    """

    count: int
    more: bool
    records: list[RecordForeseen]
    topics: dict[str, str]


class Written(TypedDict):
    offsets: Offsets
    foreseen: NotRequired[Foreseen]


class Listing(TypedDict):
    end_offset: int
    controller_epoch: int


class Outcome(TypedDict):
    """What became of one item: no error, or its name and a message."""

    error: str | None
    message: str | None
