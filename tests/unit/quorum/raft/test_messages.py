"""Which messages voters accept from each other; pickles are neither sent nor read."""

import pickle
import random
from typing import Any

import msgpack
import pysyncobj.pickle
import pytest

from metadata_log.errors import InvariantBroken
from metadata_log.ids import NodeId
from quorum.raft import messages
from quorum.raft.messages import ForeignMessage, Message
from tests.simulation.faults.profiles import PROFILES
from tests.simulation.world.hand_driven import A, B, HandQuorum
from tests.simulation.world.world import World

SAMPLES: dict[str, Message] = {
    "append_entries": messages.append_entries(
        term=3, commit_index=4, previous=(4, 2), entries=[(b"\x01", 5, 3), (b"\x10frames", 6, 3)]
    ),
    "next_node_idx": messages.next_node_idx(term=3, next_index=7, success=True),
    "request_vote": {
        "type": "request_vote",
        "term": 3,
        "last_log_index": 6,
        "last_log_term": 2,
        "force": False,
    },
    "response_vote": {"type": "response_vote", "term": 3},
    "pre_vote": {"type": "pre_vote", "term": 3, "last_log_index": 6, "last_log_term": 2},
    "pre_vote_response": {"type": "pre_vote_response", "term": 3, "granted": True},
    "install_snapshot": {
        "type": "install_snapshot",
        "term": 3,
        "index": 6,
        "index_term": 2,
        "pointer": b"bytes",
    },
    "read_probe": {"type": "read_probe", "term": 3, "read_id": 1},
    "read_probe_response": {"type": "read_probe_response", "term": 3, "read_id": 1},
    "timeout_now": {"type": "timeout_now", "term": 3},
    "nack": {"type": "nack", "term": 3},
}


def test_there_is_a_sample_of_each_kind() -> None:
    assert set(SAMPLES) == messages.KINDS


@pytest.mark.parametrize("kind", sorted(SAMPLES))
def test_a_message_survives_the_wire(kind: str) -> None:
    messages.check(msgpack.unpackb(msgpack.packb(SAMPLES[kind])))


@pytest.mark.parametrize("kind", sorted(SAMPLES))
def test_any_missing_additional_or_mistyped_field_is_refused(kind: str) -> None:
    sample = SAMPLES[kind]
    wrong_values: tuple[object, ...] = (None, -1, 2**64, 1.5, "text", [b"\x02"], {})
    broken: list[object] = [sample | {"transmission": "start"}, sample | {1: 2}, [sample], None, kind]
    for name in sample:
        broken.append({key: value for key, value in sample.items() if key != name})
        broken += [sample | {name: wrong} for wrong in wrong_values]
        if name not in ("granted", "force", "reset", "success"):
            broken.append(sample | {name: True})
    for message in broken:
        with pytest.raises(ValueError, match=r".+"):
            messages.check(message)


@pytest.mark.parametrize(
    "foreign",
    [
        {"type": "apply_command", "command": b"\x00"},
        {"type": "apply_command", "command": b"\x00", "request_id": 1},
        {"type": "apply_command_response", "request_id": 1, "error": 0},
        {"type": "append_entries", "term": 1, "commit_index": 1, "serialized": [b"", True, True]},
        {"type": "append_entries", "term": 1, "commit_index": 1, "transmission": "start", "data": b""},
        ["status"],
        ["add", "host:1"],
        "readonly",
    ],
)
def test_what_the_library_would_obey_is_refused(foreign: object) -> None:
    with pytest.raises(ValueError, match=r".+"):
        messages.check(foreign)


@pytest.mark.parametrize("command", [b"", b"\x00pickle", b"\x02", b"\x03", b"\x01more", b"\x11"])
def test_only_our_entries_and_the_no_op_enter_a_log(command: bytes) -> None:
    with pytest.raises(ValueError, match="entries"):
        messages.check(SAMPLES["append_entries"] | {"entries": [[command, 5, 3]]})


@pytest.mark.parametrize(
    "entries",
    [
        [[b"\x10", 6, 3]],  # a gap behind prevLogIdx
        [[b"\x10", 5, 3], [b"\x10", 7, 3]],  # a gap within
        [[b"\x10", 5, 1]],  # a term below the one before
        [[b"\x10", 5, 4]],  # a term above the leader's
        [[b"\x10", 5, 3], [b"\x10", 6, 2]],  # a falling term
    ],
)
def test_entries_follow_each_other(entries: list[list[Any]]) -> None:
    with pytest.raises(ValueError, match="append_entries"):
        messages.check(SAMPLES["append_entries"] | {"entries": entries})


# --- pickle


class _Bomb:
    """Its unpickling would be seen."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _explode, ()


def _explode() -> None:
    raise SystemExit("a pickle was loaded")


def _forbid_pickles(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise SystemExit("a pickle was loaded")

    for module in (pickle, pysyncobj.pickle):
        for name in ("load", "loads", "Unpickler", "_loads"):
            if hasattr(module, name):
                monkeypatch.setattr(module, name, refuse)


@pytest.mark.slow
def test_no_pickle_is_read_in_the_life_of_a_quorum(monkeypatch: pytest.MonkeyPatch) -> None:
    """B10: Elections, commits, crashes, restarts and snapshots, with every way to load a pickle barred."""
    _forbid_pickles(monkeypatch)
    world = World(seed=3, profile=PROFILES["fifo"])
    assert world.run(24.0) == []
    assert world.writes_acknowledged > 100
    assert world.snapshots_fetched > 0


def test_a_pickle_as_a_command_is_bytes_and_nothing_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pickle within our own payload commits like any bytes; under the library's type bytes it never gets in."""
    bomb = pickle.dumps(_Bomb())
    _forbid_pickles(monkeypatch)
    quorum = HandQuorum()
    quorum.elect(A)
    quorum[A].submit(bomb)
    quorum.settle()
    quorum.beat(A)
    quorum.settle()
    assert quorum[B].journal[-1][0] == b"\x10" + bomb
    assert quorum[B].engine.commit_index == 3
    for kind_byte in (b"\x00", b"\x02", b"\x03"):
        hostile = messages.append_entries(
            term=1, commit_index=9, previous=(3, 1), entries=[(kind_byte + bomb, 4, 1)]
        )
        with pytest.raises(ValueError, match="entries"):
            messages.check(hostile)


@pytest.mark.parametrize("seed", range(3))
def test_hostile_bytes_in_every_field_load_nothing_and_stop_nobody(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """What passes the check is handed to a follower: its pointer, its votes, its indexes are hostile."""
    bomb = pickle.dumps(_Bomb())
    _forbid_pickles(monkeypatch)
    rng = random.Random(seed)
    quorum = HandQuorum()
    quorum.elect(A)
    for _ in range(300):
        message = dict(SAMPLES[rng.choice(sorted(SAMPLES))])
        for name, value in message.items():
            if name != "type" and rng.random() < 0.5:
                if type(value) is int:
                    message[name] = rng.choice((0, 1, 2, 3, rng.getrandbits(40)))
                elif type(value) is bytes:
                    message[name] = bomb
                elif type(value) is list:
                    message[name] = [[b"\x10" + bomb, message["prevLogIdx"] + 1, message["term"]]]
        try:
            messages.check(message)
        except ValueError:
            continue
        # A voter's lie may be a proved violation, which stops the process; it is never code.
        try:
            quorum[B].guard.received(quorum.member(NodeId(rng.choice((1, 3, 99)))), message, quorum.now)
        except ForeignMessage:
            pass
        except InvariantBroken:
            quorum = HandQuorum()
            quorum.elect(A)
