"""Edge: what stories ask Kafka's brokers, beside the message schemas of Apache Kafka, as kio has them."""

import io
import struct
from importlib import import_module
from typing import Any

import pytest
from kio.serial import entity_reader, entity_writer

from ops.stories import requests
from ops.stories.requests import Answer

FOLDERS = {
    0: "produce",
    1: "fetch",
    2: "list_offsets",
    8: "offset_commit",
    9: "offset_fetch",
    10: "find_coordinator",
    11: "join_group",
    12: "heartbeat",
    13: "leave_group",
    14: "sync_group",
}


def schema(key: int, version: int) -> Any:
    module = import_module(f"kio.schema.{FOLDERS[key]}.v{version}.request")
    return getattr(module, f"{FOLDERS[key].title().replace('_', '')}Request")


@pytest.mark.parametrize(
    ("api", "body"),
    [
        (requests.LIST_OFFSETS, requests.list_offsets("t", 3, replica_id=requests.DEBUGGER)),
        (requests.FETCH, requests.fetch("t", 0, 9, version=11, rack="a")),
        (requests.FETCH_WITHOUT_RACK, requests.fetch("t", 0, 9, version=10)),
        (requests.FIND_COORDINATOR, requests.find_coordinator("g")),
        (requests.JOIN_GROUP, requests.join_group("g", "", ["t"], session_ms=6000, rebalance_ms=9000)),
        (requests.SYNC_GROUP, requests.sync_group("g", 1, "m", {"m": ("t", [0, 1])})),
        (requests.HEARTBEAT, requests.of_member("g", 1, "m")),
        (requests.LEAVE_GROUP, requests.leave_group("g", "m")),
        (requests.OFFSET_COMMIT, requests.offset_commit(requests.of_member("g", 1, "m"), "t", 0, 57)),
        (requests.OFFSET_FETCH, requests.offset_fetch("g", "t", 0)),
        (requests.PRODUCE, requests.produce("t", 0, b"batch")),
    ],
)
def test_a_request_is_read_by_the_schema_and_written_the_same(api: tuple[int, int], body: bytes) -> None:
    entity = schema(*api)
    read, size = entity_reader(entity)(body, 0)
    assert size == len(body)
    written = io.BytesIO()
    entity_writer(entity)(written, read)
    assert written.getvalue() == body


def test_a_request_has_its_size_and_header_in_front() -> None:
    sent = requests.request((3, 0), 5, b"body")
    assert sent[:4] == struct.pack(">i", len(sent) - 4)
    assert struct.unpack_from(">hhi", sent, 4) == (3, 0, 5)
    assert sent.endswith(b"a storybody")


def test_answers_are_read() -> None:
    listed = struct.pack(">ii", 0, 1) + b"\0\x01t" + struct.pack(">iihqqi", 1, 0, 78, -1, 9, 0)
    assert requests.read_list_offsets(Answer(listed)) == (78, 9)
    fetched = (
        struct.pack(">ihii", 0, 0, 0, 1)
        + b"\0\x01t"
        + struct.pack(">iihqqqiii", 1, 0, 0, 7, 7, 0, -1, 12, 3)
        + b"abc"
    )
    assert requests.read_fetch(Answer(fetched), version=11) == (0, 7, b"abc", 12)
    share = requests.assignment("t", [1, 3])
    assert requests.read_sync_group(Answer(struct.pack(">ihi", 0, 0, len(share)) + share)) == (0, (1, 3))
    assert requests.read_sync_group(Answer(struct.pack(">ihi", 0, 27, 0))) == (27, ())
    committed = struct.pack(">ii", 0, 1) + b"\0\x01t" + struct.pack(">iiqihhh", 1, 0, 57, -1, -1, 0, 0)
    assert requests.read_offset_fetch(Answer(committed)) == (0, 57)
    assert requests.error_name(6) == "NOT_LEADER_OR_FOLLOWER"
    assert requests.error_name(999) == "error 999"
