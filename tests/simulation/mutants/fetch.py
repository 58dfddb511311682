"""Pure: seeded bugs of polls, their answers, feeds and digests."""

import importlib
from typing import Any, Final
from unittest.mock import patch

from metadata_log.codec import read_header
from quorum.log.topic_feeds import filter_of
from tests.simulation.mutants.mutant import Directed, Mutant, Seeds, always, at_once, reads_at_once

_CONNECTION_TESTS: Final = "tests/unit/quorum/http/test_poll_connection.py"
_FETCH_TESTS: Final = "tests/unit/quorum/fetch/test_service.py"
_HEARTBEAT_TESTS: Final = "tests/unit/quorum/controller/test_heartbeats.py"
_DIGEST_TESTS: Final = "tests/unit/metadata_log/test_state_digest.py"


def _takes_names_of_now(_original: Any) -> Any:
    return lambda feeds, _offset, *, names, ids: filter_of(feeds._image, names, ids)


def _judges_what_it_lacks(reply: Any) -> Any:
    def judged(service: Any, position: Any) -> Any:
        with patch.object(type(service._controller), "is_active", new=True):
            return reply(service, position)

    return judged


def _without_the_first_frame(read: Any) -> Any:
    def less(log: Any, from_offset: int, **bounds: Any) -> bytes:
        frames: bytes = read(log, from_offset, **bounds)
        return frames[read_header(frames).frame_bytes :] if frames else frames

    return less


class _Unproved:
    """What stands for a controller's Raft, or for the controller, in a fetch service whose answers rest on no proof."""

    def __init__(self, real: Any) -> None:
        self._real = real

    def __getattr__(self, name: str) -> Any:
        if name == "read_index":
            return at_once
        return _Unproved(self._real.raft) if name == "raft" else getattr(self._real, name)


def _fetches_at_once(original: Any) -> Any:
    def init(service: Any, **parts: Any) -> None:
        original(service, **parts)
        service._controller = _Unproved(service._controller)

    return init


def _answers_the_refused(original: Any) -> Any:
    def next_piece(polls: Any) -> bool:
        for poll in polls._ready:
            if poll.state.name == "REFUSED":
                poll.state = type(poll.state).DUE
        done: bool = original(polls)
        return done

    return next_piece


def _forgets_the_last(original: Any) -> Any:
    def take_before(waiting: Any, end_offset: int) -> Any:
        return original(waiting, end_offset)[:-1]

    return take_before


def _runs_one_slice(_original: Any) -> Any:
    def run(slices: Any) -> None:
        slices._is_due = False
        for _ in range(slices.pieces_max):
            slices._step()

    return run


def _runs_all_slices(_original: Any) -> Any:
    def run(slices: Any) -> None:
        slices._is_due = False
        while slices._step():
            pass

    return run


def _counts_with_the_batch(original: Any) -> Any:
    def behind(before: Any, touched: Any) -> Any:
        before.digest_buckets  # noqa: B018 (who asks has them counted)
        return original(before, touched)

    return staticmethod(behind)


def _knows_any_position(original: Any) -> Any:
    def reply_to(position: Any, *, log: Any, high_watermark: int, **other: Any) -> Any:
        if log.log_start_offset <= position.offset < high_watermark:
            return importlib.import_module("quorum.fetch.position").SendDelta(position.offset)
        return original(position, log=log, high_watermark=high_watermark, **other)

    return reply_to


MUTANTS: Final = (
    Mutant(
        "deposed-renews",
        "a deposed leader that slept renews a broker's session: its answers to polls rest on no proof",
        "quorum.fetch.service:FetchService.__init__",
        _fetches_at_once,
        Directed(f"{_FETCH_TESTS}::test_news_at_hand_is_answered_only_with_proof_of_leadership"),
    ),
    Mutant(
        "proved-before",
        "a round of probes renews brokers whose polls arrived after it began",
        "quorum.fetch.polls:Polls._take_unproved",
        lambda _: lambda polls: polls._unproved,
        Directed(f"{_FETCH_TESTS}::test_a_round_of_probes_counts_for_those_alone_that_arrived_before_it"),
    ),
    Mutant(
        "answers-the-refused",
        "a poll of a claim that ended is answered under the next one",
        "quorum.fetch.polls:Polls._next_piece",
        _answers_the_refused,
        Directed(
            f"{_FETCH_TESTS}::test_a_poll_that_was_refused_is_not_answered_by_the_next_claim_of_the_same_controller"
        ),
    ),
    Mutant(
        "poll-forgotten",
        "a commit wakes all parked polls but the last",
        "quorum.fetch.waiting:WaitingPolls.take_before",
        _forgets_the_last,
        Directed(f"{_FETCH_TESTS}::test_no_poll_is_forgotten"),
    ),
    Mutant(
        "slice-forgotten",
        "polls that one slice does not reach are left until something else happens",
        "metadata_log.node.pace:Pieces._run",
        _runs_one_slice,
        Directed(f"{_FETCH_TESTS}::test_no_poll_is_forgotten"),
    ),
    Mutant(
        "polls-in-one-turn",
        "all polls that are due are answered in one turn of the loop",
        "metadata_log.node.pace:Pieces._run",
        _runs_all_slices,
        Seeds("heavy", 10, brokers=20),
    ),
    Mutant(
        "encodes-each-poll",
        "polls at one position do not share the bytes of their answer",
        "quorum.fetch.replies:same_answer",
        lambda original: lambda *told, **rest: (object(), original(*told, **rest)),
        Directed(
            f"{_FETCH_TESTS}::test_polls_at_one_position_share_their_bytes_and_those_in_another_state_do_not"
        ),
    ),
    Mutant(
        "reads-on-the-loop",
        "frames that are in segments alone are read in a turn of the loop",
        "quorum.log.committed_log:CommittedLog.is_cold",
        always(False),
        Seeds("heavy", 30),
    ),
    Mutant(
        "digest-with-each-batch",
        "the state digest is counted with each batch, in the same turn of the loop",
        "metadata_log.image.metadata_image:StateDigest.behind",
        _counts_with_the_batch,
        Directed(f"{_DIGEST_TESTS}::test_a_batch_counts_nothing_of_the_digest"),
    ),
    Mutant(
        "digest-at-once",
        "who asks for the state digest has all of it counted in one turn of the loop",
        "metadata_log.image.metadata_image:LINES_COUNTED_AT_ONCE",
        lambda _original: 10**9,
        Directed(f"{_DIGEST_TESTS}::test_who_asks_has_some_lines_counted_at_a_time"),
    ),
    Mutant(
        "digest-of-the-newest",
        "`/v1/quorum` counts in one turn what was applied while the state digest was counted in slices",
        "quorum.views.status:QuorumStatus.quorum",
        lambda original: lambda status, _counted: original(status, status.controller.committed),
        Directed(
            "tests/unit/quorum/http/test_quorum.py::test_what_is_applied_meanwhile_is_not_counted_at_once"
        ),
    ),
    Mutant(
        "shared-state",
        "a fenced broker gets the answer of one that is online",
        "quorum.fetch.replies:same_answer",
        lambda original: lambda request, _state, **told: original(request, None, **told),
        Directed(
            f"{_FETCH_TESTS}::test_polls_at_one_position_share_their_bytes_and_those_in_another_state_do_not"
        ),
    ),
    Mutant(
        "unread-answers",
        "a client that reads nothing is sent one answer after the other",
        "quorum.http.poll_connection:PollConnection._is_idle",
        lambda _: lambda connection: not (connection._waiter is None or connection._waiter.done()),
        Directed(f"{_CONNECTION_TESTS}::test_who_does_not_read_is_owed_a_bounded_number_of_answers"),
    ),
    Mutant(
        "begun-request",
        "a poll is read in the middle of another request's headers",
        "quorum.http.poll_connection:PollConnection._begins_request",
        lambda _: property(lambda _connection: True, lambda _connection, _value: None),
        Directed(f"{_CONNECTION_TESTS}::test_headers_that_look_like_a_poll_are_read_as_headers"),
    ),
    Mutant(
        "obeys-late-heartbeats",
        "an overloaded controller decides on what brokers wanted a while ago",
        "quorum.controller.heartbeats:Heartbeats.is_late",
        always(False),
        Directed(f"{_FETCH_TESTS}::test_a_heartbeat_that_stood_here_too_long_only_renews_its_session"),
    ),
    Mutant(
        "well-without-proof",
        "a deposed leader goes on telling Kafka's brokers that they are well: its answers to heartbeats rest on no proof",
        "quorum.controller.heartbeats:Heartbeats._prove",
        reads_at_once,
        Seeds("asleep", 6, brokers=2, followers=3),
    ),
    Mutant(
        "well-at-once",
        "a deposed leader tells Kafka's idle brokers that they are well in the turn in which they ask",
        "quorum.controller.heartbeats:Heartbeats._when_proved",
        lambda _: lambda _self, proved, **_within: proved(None),
        Directed(f"{_HEARTBEAT_TESTS}::test_a_heartbeat_that_waits_for_the_proof_alone_has_no_task"),
    ),
    Mutant(
        "answers-without-leader",
        "a follower that has lost its leader answers observers as if it were current",
        "quorum.fetch.service:FetchService._follows",
        always(value=True),
        Directed(f"{_FETCH_TESTS}::test_a_follower_without_a_leader_answers_no_observer"),
    ),
    Mutant(
        "ahead-is-diverging",
        "a follower that lags calls an observer diverging that has read on at the leader",
        "quorum.fetch.replies:Replies.sending",
        _judges_what_it_lacks,
        Directed(f"{_FETCH_TESTS}::test_a_follower_that_lags_does_not_call_an_observer_diverging"),
    ),
    Mutant(
        "feed-names-of-now",
        "a change feed from an earlier offset takes names for the topics that bear them now",
        "quorum.log.topic_feeds:TopicFeeds.filter_at",
        _takes_names_of_now,
        Directed("tests/unit/quorum/http/test_feed.py"),
    ),
    Mutant(
        "delta-gap",
        "a delta lacks its first batch",
        "quorum.log.committed_log:CommittedLog.read",
        _without_the_first_frame,
        Seeds("calm", 5),
    ),
    Mutant(
        "any-position",
        "a broker is sent a delta behind a foreign history",
        "quorum.fetch.position:reply_to",
        _knows_any_position,
        Directed("tests/unit/quorum/fetch/test_position.py"),
        elsewhere=("quorum.fetch.replies",),
    ),
)
