"""A leader's proposals: which share an entry, and how many bytes may be in flight."""

import pytest

from metadata_log.errors import InvariantBroken, ThrottlingQuotaExceeded
from metadata_log.ids import NodeId, Uuid
from metadata_log.limits import RAFT_ENTRY_BYTES_MAX, RAFT_ENTRY_SHARED_BYTES
from quorum.raft import proposals
from quorum.raft.proposals import Proposal, Proposals
from quorum.raft.raft_log import Voters

VOTERS: Voters = {NodeId(1): Uuid(bytes(16))}


def test_frames_that_wait_share_an_entry_and_a_change_of_voters_stands_alone() -> None:
    waiting = Proposals()
    for proposal in (
        Proposal(b"a", None),
        Proposal(b"b", None),
        Proposal(b"c", VOTERS),
        Proposal(b"d", None),
    ):
        waiting.add(proposal)
    assert waiting.has_change
    assert [waiting.take() for _ in range(4)] == [
        Proposal(b"ab", None),
        Proposal(b"c", VOTERS),
        Proposal(b"d", None),
        None,
    ]


def test_an_entry_holds_no_more_than_its_bound() -> None:
    waiting = Proposals()
    half, large = bytes(RAFT_ENTRY_SHARED_BYTES // 2), bytes(RAFT_ENTRY_SHARED_BYTES + 1)
    for frames in (half, half, half, large, half):
        waiting.add(Proposal(frames, None))
    taken = [waiting.take() for _ in range(5)]
    assert taken == [*(Proposal(frames, None) for frames in (half + half, half, large, half)), None]
    with pytest.raises(InvariantBroken):
        waiting.add(Proposal(bytes(RAFT_ENTRY_BYTES_MAX), None))


def test_what_is_in_flight_is_bounded_until_it_is_applied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proposals, "RAFT_UNCOMMITTED_BYTES_MAX", 4)
    waiting = Proposals()
    waiting.add(Proposal(b"1234", None))
    assert waiting.take() is not None
    waiting.submitted(7, 4)
    with pytest.raises(ThrottlingQuotaExceeded):
        waiting.add(Proposal(b"5", None))
    waiting.applied(6)
    with pytest.raises(ThrottlingQuotaExceeded):
        waiting.add(Proposal(b"5", None))
    waiting.applied(7)
    waiting.add(Proposal(b"5", None))
    waiting.clear()
    assert waiting.take() is None


def test_what_was_in_flight_when_leadership_ended_is_counted_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: the bound is the same in each leadership, though entries of the last one are applied in this one."""
    monkeypatch.setattr(proposals, "RAFT_UNCOMMITTED_BYTES_MAX", 4)
    waiting = Proposals()
    waiting.add(Proposal(b"1234", None))
    assert waiting.take() is not None
    waiting.submitted(7, 4)
    waiting.clear()
    waiting.applied(7)
    waiting.add(Proposal(b"1234", None))
    with pytest.raises(ThrottlingQuotaExceeded):
        waiting.add(Proposal(b"5", None))
