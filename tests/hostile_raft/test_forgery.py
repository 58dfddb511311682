"""Forged messages are what they are said to be, and the same seed forges the same."""

import random
from collections import Counter
from dataclasses import replace

import msgpack
import pytest

from metadata_log.ids import NodeId, Uuid
from quorum.raft import messages
from tests.hostile_raft.forgery import WELCOME, Forger, Sight, Visit

SIGHT = Sight(
    cluster_id="c" * 22,
    voters={NodeId(node_id): Uuid(bytes([node_id]) * 16) for node_id in (1, 2, 3)},
    node_id=NodeId(1),
    is_leader=True,
    term=5,
    last_index=40,
    frames=b"frames of a batch",
)


def visits(seed: int, count: int, sight: Sight = SIGHT) -> list[Visit]:
    forger = Forger(random.Random(seed), 100)
    return [forger.visit(sight) for _ in range(count)]


def test_a_seed_forges_the_same() -> None:
    assert visits(3, 200) == visits(3, 200) != visits(4, 200)


def test_all_kinds_of_forgery_occur() -> None:
    kinds = Counter(visit.kind for visit in visits(1, 2_000))
    assert len(kinds) == 12
    assert min(kinds.values()) >= 10
    assert "an entry never sent" not in {
        visit.kind for visit in visits(1, 500, replace(SIGHT, is_leader=False))
    }


@pytest.mark.parametrize("sight", [SIGHT, replace(SIGHT, term=0, last_index=1, is_leader=False)])
def test_all_but_the_last_message_of_a_visit_have_the_shape_of_ours(sight: Sight) -> None:
    told: Counter[str] = Counter()
    for visit in visits(2, 1_000, sight):
        said, count = visit.then.removeprefix(WELCOME), 0
        while said and count < visit.messages - 1:
            size = 8 + int.from_bytes(said[:4], "big")
            message = msgpack.unpackb(said[8:size])
            messages.check(message)
            told[message["type"]] += 1
            said, count = said[size:], count + 1
        assert bool(said) == bool(visit.then not in (b"", WELCOME))
    assert set(told) == messages.KINDS if sight.term else set(told) < messages.KINDS
