"""Edge: controllers' messages and Raft's small files are accepted exactly where the rules, written out by hand, accept them.

Values go through msgpack first, as they arrive. What is refused is refused by a ValueError, never by another error.
"""

import random
from collections.abc import Callable
from itertools import pairwise, product
from typing import Any

import google_crc32c
import msgpack
import pytest

from metadata_log.errors import UnknownFormat
from metadata_log.ids import NodeId, Uuid
from metadata_log.node.addresses import is_address, is_node_url
from quorum.raft import messages
from quorum.raft.handshake import REFUSALS, Hello, Refusal, hello_from, hello_message, refusal_from
from quorum.raft.handshake import verdict_message as verdict
from quorum.raft.journal.format import decode_records, encode_records
from quorum.raft.pointer import Pointer
from quorum.raft.voters import from_command, from_rows, to_command, to_rows

HOSTILE: list[Any] = [
    *(
        None,
        True,
        False,
        0,
        1,
        2,
        3,
        -1,
        2**31,
        2**63 - 1,
        2**63,
        2**64 - 1,
        -(2**63),
        1.0,
        2.0,
        float("nan"),
    ),
    *(
        "",
        "2",
        "text",
        "x" * 22,
        "hello",
        "x" * 3000,
        b"",
        b"\x01",
        b"\x01x",
        b"\x10",
        b"\x11",
        bytes(16),
        bytes(17),
    ),
    *([], [1], [[]], [b"\x01", 1, 1], {}, {"type": "nack"}, {"term": 1}),
    *(msgpack.ExtType(1, b""), msgpack.ExtType(5, bytes(16)), msgpack.Timestamp(0)),
]
ROWS = to_rows({NodeId(node_id): Uuid(bytes([node_id]) * 16) for node_id in (1, 2, 7)})


# --- the rules by hand


def natural(value: object, least: int = 0) -> bool:
    return type(value) is int and least <= value < 2**63


def is_bool(value: object) -> bool:
    return type(value) is bool


def is_entry(value: object, least: int = 0) -> bool:
    return (
        type(value) is list
        and len(value) == 3
        and type(value[0]) is bytes
        and messages.is_entry_command(value[0])
        and natural(value[1], least)
        and natural(value[2])
    )


def is_entries(value: object) -> bool:
    return type(value) is list and all(map(is_entry, value))


KINDS: dict[str, dict[str, Callable[[object], bool]]] = {
    "append_entries": {
        **dict.fromkeys(("term", "commit_index", "prevLogIdx", "prevLogTerm"), natural),
        "entries": is_entries,
    },
    "next_node_idx": {
        **dict.fromkeys(("term", "next_node_idx", "hint_index", "hint_term"), natural),
        **dict.fromkeys(("reset", "success"), is_bool),
    },
    "request_vote": {
        **dict.fromkeys(("term", "last_log_index", "last_log_term"), natural),
        "force": is_bool,
    },
    "response_vote": {"term": natural},
    "pre_vote": dict.fromkeys(("term", "last_log_index", "last_log_term"), natural),
    "pre_vote_response": {"term": natural, "granted": is_bool},
    "install_snapshot": {
        **dict.fromkeys(("term", "index", "index_term"), natural),
        "pointer": lambda value: type(value) is bytes,
    },
    "read_probe": {"term": natural, "read_id": natural},
    "read_probe_response": {"term": natural, "read_id": natural},
    "timeout_now": {"term": natural},
    "nack": {"term": natural},
}


def is_message(value: Any) -> bool:
    if type(value) is not dict or type(value.get("type")) is not str or value["type"] not in KINDS:
        return False
    fields = KINDS[value["type"]]
    if value.keys() != {"type", *fields} or not all(fields[name](value[name]) for name in fields):
        return False
    terms = [value[name] for name in fields if "term" in name.lower()]
    if max(terms) > 2**48 or max(terms) > value["term"]:
        return False
    if value["type"] == "next_node_idx" and value["success"] and value["next_node_idx"] == 0:
        return False
    if value["type"] == "append_entries":
        index, term = value["prevLogIdx"], value["prevLogTerm"]
        for _, entry_index, entry_term in value["entries"]:
            if entry_index != index + 1 or not term <= entry_term <= value["term"]:
                return False
            index, term = entry_index, entry_term
    return True


def is_hello(value: Any) -> bool:
    if type(value) is not dict or value.get("type") != "hello" or value.get("version") != 2:
        return False
    return (
        type(value["version"]) is not bool
        and type(value.get("cluster_id")) is str
        and len(value["cluster_id"]) == 22
        and natural(value.get("node_id"))
        and type(value.get("directory_id")) is bytes
        and len(value["directory_id"]) == 16
        and type(value.get("http")) is str
        and len(value["http"]) <= 2_000
        and is_node_url(value["http"])
        and type(value.get("raft")) is str
        and is_address(value["raft"])
        and type(value.get("founding")) is bytes
        and len(value["founding"]) in (0, 32)
        and type(value.get("checksums", False)) is bool
        and type(value.get("redials", False)) is bool
        and all(type(key) is str for key in value)
    )


def is_verdict(value: Any) -> bool:
    if type(value) is not dict or value.get("type") not in ("welcome", "refused"):
        return False
    if value["type"] == "welcome":
        return True
    return (
        type(value.get("error")) is str
        and value["error"] in REFUSALS
        and type(value.get("message")) is str
        and all(type(key) is str for key in value)
    )


def is_rows(value: Any) -> bool:
    return (
        type(value) is list
        and 1 <= len(value) <= 10
        and all(
            type(row) is list
            and len(row) == 2
            and natural(row[0])
            and type(row[1]) is bytes
            and len(row[1]) == 16
            for row in value
        )
        and all(one[0] < other[0] for one, other in pairwise(value))
    )


def is_pointer(value: Any) -> bool:
    return (
        type(value) is list
        and len(value) > 0
        and len(value) == 5
        and type(value[0]) is int
        and value[0] == 2
        and type(value[1]) is str
        and 0 < len(value[1]) <= 255
        and type(value[2]) is list
        and len(value[2]) == 2
        and all(is_entry(entry, 1) for entry in value[2])
        and value[2][1][1] == value[2][0][1] + 1
        and value[2][1][2] >= value[2][0][2]
        and is_rows(value[3])
        and type(value[4]) is bytes
        and len(value[4]) <= 255
    )


VOTE = (int, str, type(None))
RECORDS: dict[int, list[type | tuple[type, ...]]] = {
    0: [int, int, int, VOTE, int, int],
    1: [int, int, VOTE],
    2: [int, int, int, bytes],
    3: [int, int],
    4: [int, int],
}


def is_record(value: Any) -> bool:
    if type(value) is not list or not value or type(value[0]) is not int or value[0] not in RECORDS:
        return False
    kinds = RECORDS[value[0]]
    return len(value) == len(kinds) and all(
        type(field) in (kind if isinstance(kind, tuple) else (kind,))
        for field, kind in zip(value, kinds, strict=True)
    )


def is_records(value: Any) -> bool:
    return type(value) is list and len(value) > 0 and all(map(is_record, value))


# --- what reads them


def read_records(value: object) -> None:
    data: bytes = msgpack.packb(value)
    assert encode_records(decode_records(data)) == data


def read_pointer(value: object) -> None:
    body: bytes = msgpack.packb(value)
    Pointer.from_bytes(body + google_crc32c.value(body).to_bytes(4, "big"))


MESSAGES: list[Any] = [
    messages.append_entries(term=3, commit_index=4, previous=(4, 2), entries=[]),
    messages.append_entries(
        term=3, commit_index=4, previous=(4, 2), entries=[(b"\x01", 5, 3), (b"\x10frames", 6, 3)]
    ),
    messages.append_entries(
        term=3, commit_index=4, previous=(4, 2), entries=[(to_command(from_rows(ROWS), b"frames"), 5, 3)]
    ),
    messages.next_node_idx(term=3, next_index=7, success=True),
    {"type": "request_vote", "term": 3, "last_log_index": 6, "last_log_term": 2, "force": False},
    {"type": "response_vote", "term": 3},
    {"type": "pre_vote", "term": 3, "last_log_index": 6, "last_log_term": 2},
    {"type": "pre_vote_response", "term": 3, "granted": True},
    {"type": "install_snapshot", "term": 3, "index": 6, "index_term": 2, "pointer": b"bytes"},
    {"type": "read_probe", "term": 3, "read_id": 1},
    {"type": "read_probe_response", "term": 3, "read_id": 1},
    {"type": "timeout_now", "term": 3},
    {"type": "nack", "term": 3},
]
HELLO = Hello(
    cluster_id="clusterclusterclusterA",
    node_id=NodeId(2),
    directory_id=Uuid(b"d" * 16),
    http="http://host:8080",
    raft="host:9093",
    founding=b"f" * 32,
)
REFUSED = verdict(Refusal("INCONSISTENT_CLUSTER_ID", "why"))
POINTER = [2, "0018-01", [[b"\x01", 13, 1], [b"\x10frames", 14, 1]], ROWS, b"seal"]
RECORDS_OF_A_BATCH = [
    *([0, 7, 3, None, 0, 0], [1, 3, 2], [1, 4, "node-2"], [2, 5, 3, b"\x10frames"], [3, 5], [4, 2**40]),
    *([2, 70_000, 300, bytes(300)], [2, 70_001, 300, bytes(70_000)]),
]
INPUTS: dict[str, tuple[list[Any], Callable[[object], bool], Callable[[Any], object]]] = {
    "messages": (MESSAGES, is_message, messages.check),
    "hello": ([hello_message(HELLO)], is_hello, hello_from),
    "verdict": ([verdict(None), REFUSED], is_verdict, refusal_from),
    "voters": ([ROWS], is_rows, from_rows),
    "pointer": ([POINTER], is_pointer, read_pointer),
    "journal records": ([RECORDS_OF_A_BATCH], is_records, read_records),
}


def changed(rng: random.Random, value: Any) -> Any:
    """Return a value with one place of it changed: replaced, left out, added or moved."""
    if rng.random() < 0.4 or not isinstance(value, dict | list) or not value:
        return rng.choice(HOSTILE)
    inner: Any = dict(value) if isinstance(value, dict) else list(value)
    place = rng.choice(list(inner) if isinstance(inner, dict) else range(len(inner)))
    if rng.random() < 0.6:
        inner[place] = changed(rng, inner[place])
    elif rng.random() < 0.3:
        del inner[place]
    elif isinstance(inner, dict):
        inner[rng.choice(("transmission", "type", "term", b"term"))] = rng.choice(HOSTILE)
    else:
        inner.insert(place, rng.choice([*HOSTILE, inner[place]]))
    return inner


@pytest.mark.parametrize("name", INPUTS)
def test_values_are_admitted_exactly_as_by_hand(name: str) -> None:
    samples, by_hand, read = INPUTS[name]
    rng = random.Random(name)
    admitted = refused = 0
    values = [*samples, *HOSTILE]
    values += [changed(rng, rng.choice(samples)) for _ in range(6_000)]
    values += [changed(rng, changed(rng, rng.choice(samples))) for _ in range(2_000)]
    for value in values:
        arrived = msgpack.unpackb(msgpack.packb(value))
        try:
            read(arrived)
        except (ValueError, UnknownFormat):
            assert not by_hand(arrived), arrived
            refused += 1
        else:
            assert by_hand(arrived), arrived
            admitted += 1
    assert refused > 1_000 and admitted >= len(samples)


@pytest.mark.parametrize("name", INPUTS)
def test_every_field_refuses_what_its_rule_refuses(name: str) -> None:
    """Goal: no field is forgotten, at any depth. Method: put each hostile value in each place of each sample in turn."""
    samples, by_hand, read = INPUTS[name]
    for value, sample in product(HOSTILE, samples):
        for other in everywhere(msgpack.unpackb(msgpack.packb(sample)), value):
            arrived = msgpack.unpackb(msgpack.packb(other))
            try:
                read(arrived)
            except (ValueError, UnknownFormat):
                assert not by_hand(arrived), (value, arrived)
            else:
                assert by_hand(arrived), (value, arrived)


def everywhere(whole: Any, value: object) -> list[Any]:
    """Return copies of `whole`, each with `value` in another place."""
    found = [value]
    if isinstance(whole, dict):
        found += [whole | {key: part} for key in whole for part in everywhere(whole[key], value)]
    elif isinstance(whole, list):
        found += [
            [*whole[:at], part, *whole[at + 1 :]]
            for at in range(len(whole))
            for part in everywhere(whole[at], value)
        ]
    return found


def test_garbage_bytes_are_refused() -> None:
    for seed in range(200):
        rng = random.Random(seed)
        garbage = rng.randbytes(rng.randint(0, 60))
        command = b"\x11" + len(garbage).to_bytes(2, "big") + garbage
        for read, data in (
            (Pointer.from_bytes, garbage),
            (Pointer.from_bytes, garbage + google_crc32c.value(garbage).to_bytes(4, "big")),
            (from_command, command),
            (decode_records, garbage),
        ):
            with pytest.raises(ValueError, match=r".+"):
                read(data)
        assert not messages.is_entry_command(command)


def test_the_bytes_are_those_of_every_release() -> None:
    voters = from_rows(ROWS[:2])
    rows = "9292" + "01c410" + 16 * "01" + "92" + "02c410" + 16 * "02"
    assert to_command(voters, b"frames").hex() == "110029" + rows + b"frames".hex()
    entries = {"before": (b"\x10x", 13, 1), "last": (b"\x10frames", 14, 1)}
    pointer = Pointer.to("0018-01", b"seal", voters=voters, **entries)
    body = "9502a7" + b"0018-01".hex() + "9293c401010d0193c40710" + b"frames".hex() + "0e01" + rows
    assert pointer.to_bytes()[:-4].hex() == body + "c404" + b"seal".hex()
    assert Pointer.from_bytes(pointer.to_bytes()) == pointer
    assert list(hello_message(HELLO)) == [
        *("type", "version", "cluster_id", "node_id", "directory_id", "http", "raft", "founding"),
        *("checksums", "redials"),
    ]
    assert msgpack.packb(verdict(None)).hex() == "81a474797065a777656c636f6d65"
