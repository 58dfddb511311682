"""Seeded bugs in what a node believes of others: its peers on the Raft port, and whoever sends it bytes.

Each row: name, what is broken, target, replacement, the test or the runs that notice it.
"""

from collections.abc import Callable
from typing import Any, Final

from tests.simulation.mutants.mutant import Directed, Mutant, Seeds

_RAFT: Final = "tests/unit/quorum/raft"
_BELIEF: Final = f"{_RAFT}/test_belief.py"


def _always(value: object) -> Callable[[Any], Any]:
    return lambda _original: lambda *_args, **_kwargs: value


class _Any(bytes):
    """Bytes that differ from none."""

    __hash__ = bytes.__hash__

    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False


_KEEPER: Final = "tests/unit/quorum/log/test_snapshot_keeper.py"
_FOREIGN_RUNS: Final = Seeds("broad", 20)
_ROWS: Final[tuple[tuple[str, str, str, Callable[[Any], Any], str | Seeds], ...]] = (
    (
        "believes-strangers",
        "whoever passed the handshake may depose a leader, and be voted for",
        "quorum.raft.belief:Belief._admits_stranger",
        _always(True),
        f"{_BELIEF}::test_a_strangers_term_deposes_nobody",
    ),
    (
        "believes-no-newcomer",
        "a node that was away for long follows none of those who vote by now",
        "quorum.raft.belief:Belief.may_believe_strangers",
        _always(False),
        f"{_BELIEF}::test_a_leader_whom_no_set_of_voters_here_names_is_followed_after_a_silence",
    ),
    (
        "stranger-founded",
        "whoever is linked keeps new disks from founding the quorum",
        "quorum.raft.transport:TcpTransport._is_known",
        _always(True),
        f"{_RAFT}/test_transport.py::test_a_stranger_does_not_say_that_the_quorum_is_founded",
    ),
    (
        "term-jumps",
        "a message's term is adopted however high it is",
        "quorum.raft.belief:Belief.check_term",
        _always(None),
        f"{_BELIEF}::test_no_message_makes_a_term_jump",
    ),
    (
        "raises-without-pace",
        "many messages together raise a term as far as each of them may",
        "quorum.raft.term_pace:TermPace.allowance",
        _always(1_000_000),
        f"{_BELIEF}::test_pace_a_member_raises_no_term_further_by_many_messages",
    ),
    (
        "strangers-use-it-up",
        "a stranger raises a voter's term as far as the other voters may be raised at once",
        "quorum.raft.belief:Belief._allowance",
        lambda original: lambda belief, **_: original(belief),
        f"{_BELIEF}::test_pace_two_messages_of_a_stranger_take_no_voter_out_of_the_others_reach",
    ),
    (
        "locked-out-for-good",
        "a voter whose term is too far above the others' is refused for ever",
        "quorum.raft.term_pace:TermPace.refuse",
        _always(None),
        f"{_BELIEF}::test_pace_a_voter_that_is_too_far_ahead_is_accepted_in_time",
    ),
    (
        "founder-takes-any-term",
        "a founder with an empty log adopts any term",
        "quorum.raft.belief:Belief._takes_any_term",
        lambda _original: lambda belief: belief._is_empty(),
        f"{_BELIEF}::test_a_founder_with_an_empty_log_takes_no_term_that_spoils_the_founding",
    ),
    (
        "joiner-takes-no-term",
        "an empty disk joins no quorum that had more than a million elections",
        "quorum.raft.belief:Belief._takes_any_term",
        _always(False),
        f"{_BELIEF}::test_an_empty_log_that_founds_nothing_takes_any_term_that_leaves_room_for_elections",
    ),
    (
        "two-leaders",
        "a second leader of a term is followed",
        "quorum.raft.belief:Belief._refuse_second_leader",
        _always(None),
        f"{_BELIEF}::test_a_second_leader_of_the_term_in_which_a_member_is_followed_costs_its_link",
    ),
    (
        "unsent-is-acknowledged",
        "an acknowledgement of what was never sent is taken for true",
        "quorum.raft.replication:Replication._refuse_unsent",
        _always(None),
        f"{_BELIEF}::test_a_voters_acknowledgement_beyond_the_log_ends_the_term",
    ),
    (
        "damaged-payload",
        "an entry is journalled whose frames were damaged on their way",
        "quorum.raft.raw_node:RawNode.check_payloads",
        _always(None),
        f"{_RAFT}/test_adapter.py::test_entries_damaged_on_their_way_are_fetched_again_and_never_journalled",
    ),
    (
        "damaged-message",
        "a message is believed that differs from its checksum",
        "quorum.raft.link:_crc",
        lambda crc: lambda body: _Any(crc(body)),
        f"{_RAFT}/test_transport.py::test_a_flipped_bit_costs_the_link_wherever_it_is",
    ),
    (
        "mute-link",
        "a message whose length was damaged on its way is waited for until all of it has arrived",
        "quorum.raft.link:Link._check_becomes_whole",
        _always(None),
        f"{_RAFT}/test_transport.py::test_a_flipped_length_does_not_make_a_link_mute_for_as_long_as_it_claims",
    ),
    (
        "foreign-snapshot",
        "a snapshot of the right id is taken, whatever history it is of",
        "quorum.log.snapshot_fetch:SnapshotFetch._objection",
        _always(None),
        _FOREIGN_RUNS,
    ),
    (
        "seals-foreign-snapshot",
        "a sound snapshot of another history that lies under the right id is announced as this log's",
        "quorum.log.snapshot_keeper:_objection",
        _always(None),
        f"{_KEEPER}::test_a_foreign_one_under_its_id_is_set_aside_before_the_seal_is_announced",
    ),
    (
        "unsealed-download",
        "a snapshot is taken whatever the hash of its bytes is",
        "snapshots.download:check_hash",
        _always(None),
        _FOREIGN_RUNS,
    ),
    (
        "refuses-alone",
        "a node skips what the quorum committed and goes on",
        "quorum.controller.controller:Controller._may_refuse",
        _always(True),
        "tests/unit/quorum/controller/test_controller.py::test_a_committed_batch_that_one_node_alone_refuses_stops_it",
    ),
    (
        "sleep-is-silence",
        "a node that was suspended believes a stranger, as if its leader had been silent",
        "quorum.raft.belief:Belief.note_awake",
        _always(None),
        f"{_BELIEF}::test_a_sleep_is_no_silence",
    ),
)

MUTANTS: Final = tuple(
    Mutant(name, breaks, target, replacement, Directed(how) if isinstance(how, str) else how)
    for name, breaks, target, replacement, how in _ROWS
)
