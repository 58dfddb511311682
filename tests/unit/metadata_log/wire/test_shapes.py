"""Pure: which values a shape accepts and refuses; a refusal names the field and no value."""

from typing import Annotated, Any, NamedTuple

import pytest
from msgspec import Meta

from metadata_log.errors import InvalidRequest
from metadata_log.wire.shapes import RawUuid, Shape, check_text, read_shape


class Row(NamedTuple):
    name: str
    ports: tuple[int, ...]


class Example(Shape, frozen=True):
    uuid: RawUuid
    count: Annotated[int, Meta(ge=-1, le=10)] = -1
    is_open: bool = False
    rows: tuple[Row, ...] = ()


GOOD: dict[str, Any] = {"uuid": b"u" * 16, "count": 10, "is_open": True, "rows": [["a", [1]]]}


def test_what_is_right_is_taken() -> None:
    assert read_shape(GOOD, Example, "example") == Example(
        uuid=b"u" * 16,  # type: ignore[arg-type]  # a plain value on purpose
        count=10,
        is_open=True,
        rows=(Row("a", (1,)),),
    )


@pytest.mark.parametrize(
    ("change", "refused"),
    [
        ({"uuid": "dXV1dXV1dXV1dXV1dXV1dQ=="}, "example.uuid: expected bytes, got str"),
        ({"uuid": b"u" * 15}, "example.uuid: expected bytes of length >= 16"),
        ({"count": True}, "example.count: expected int, got bool"),
        ({"count": 11}, "example.count: expected int <= 10"),
        ({"count": 1.0}, "example.count: expected int, got float"),
        ({"count": "1"}, "example.count: expected int, got str"),
        ({"is_open": 1}, "example.is_open: expected bool, got int"),
        ({"rows": [["a"]]}, "example.rows[0]: expected array of length 2, got 1"),
        ({"rows": [["a", [1], 2]]}, "example.rows[0]: expected array of length 2, got 3"),
        ({"rows": [["a", ["secret"]]]}, "example.rows[0][1][0]: expected int, got str"),
        ({"typo": 1}, "example: object contains unknown field typo"),
    ],
)
def test_what_is_wrong_is_named(change: dict[str, Any], refused: str) -> None:
    with pytest.raises(InvalidRequest) as error:
        read_shape(GOOD | change, Example, "example")
    assert error.value.message == refused


def test_a_missing_field_is_named() -> None:
    with pytest.raises(InvalidRequest, match="example: object missing required field uuid"):
        read_shape({}, Example, "example")


def test_text_is_bounded_in_bytes() -> None:
    check_text("name", "ä" * 5, bytes_max=10)
    with pytest.raises(InvalidRequest, match="name must be text of at most 9 bytes"):
        check_text("name", "ä" * 5, bytes_max=9)
    with pytest.raises(InvalidRequest, match="name is not Unicode text"):
        check_text("name", "\udc80")
