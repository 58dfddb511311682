"""Edge: an answer in pieces has the bytes of the whole, and no call encodes much of it."""

from typing import Any

import pytest

from metadata_log import limits
from metadata_log.items import Items, listed
from metadata_log.node.http import encodings
from metadata_log.node.http.encodings import (
    ENCODED_AT_ONCE,
    joined,
    json_bytes,
    packed,
    parts_of,
)

MANY = 5 * ENCODED_AT_ONCE


def answer() -> dict[str, Any]:
    def row(number: int) -> dict[str, Any]:
        return {
            "name": f"t\ud800{number}",
            "configs": {"a": "b"},
            "parts": Items(number % 3, range(number % 3)),
        }

    return {
        "end_offset": 7,
        "none": Items(0, ()),
        "few": [1, 2],
        "many": [{"number": number} for number in range(MANY)],
        "items": Items(MANY, map(row, range(MANY))),
    }


def whole() -> dict[str, Any]:
    value = listed(answer())
    value["items"] = [listed(row) for row in value["items"]]
    return value


@pytest.mark.parametrize("as_msgpack", [True, False])
def test_the_parts_are_the_whole_and_each_is_small(as_msgpack: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = packed(whole()) if as_msgpack else json_bytes(whole())

    def small(value: object) -> bytes:
        assert not isinstance(value, list) or len(value) <= ENCODED_AT_ONCE
        return packed(value) if as_msgpack else json_bytes(value)

    monkeypatch.setattr(encodings, "packed" if as_msgpack else "json_bytes", small)
    monkeypatch.setattr(limits, "ANSWER_PIECE_BYTES", 1_000)
    parts = parts_of(answer(), as_msgpack=as_msgpack)
    pieces = [*iter(lambda: joined(parts), b"")]
    assert b"".join(pieces) == expected
    assert max(map(len, pieces)) < 1_000 + 200
