"""Pure: seeded bugs by which work, memory or waiting grows with more than what changes."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, Final
from unittest.mock import patch

from metadata_log.image.partition_index import index_of
from metadata_log.node import answer_pieces
from quorum.decide.canonical import pack_outcome
from tests.simulation.mutants.mutant import Directed, Mutant, always

_ADAPTER_TESTS: Final = "tests/unit/quorum/raft/test_adapter.py"
_ADMINISTRATION_TESTS: Final = "tests/unit/quorum/http/test_administration.py"
_AGENT_TESTS: Final = "tests/unit/broker_agent/test_agent.py"
_APPLY_TESTS: Final = "tests/unit/metadata_log/test_apply.py"
_FETCH_TESTS: Final = "tests/unit/quorum/fetch/test_service.py"
_KEEPER_TESTS: Final = "tests/unit/quorum/log/test_snapshot_keeper.py"
_SESSION_TESTS: Final = "tests/unit/quorum/test_sessions.py"
_THREAD_TESTS: Final = "tests/unit/metadata_log/node/test_threads.py"
_WAKE_TESTS: Final = "tests/unit/quorum/raft/test_wake.py"
_NO_BOUND: Final = 10**12


# --- what is asked of the state


def _counts_all_partitions(health: Any) -> Any:
    def walking(image: Any, default_min_isr: int) -> Any:
        topics = image.topics
        index = index_of([topics.by_id[topic_id] for topic_id in topics.by_id], topics.index.min_isr)
        return health(replace(image, topics=replace(topics, index=index)), default_min_isr)

    return walking


def _counts_brokers_for_a_scrape(exposition: Any) -> Any:
    def counting(status: Any, **when: Any) -> Any:
        status.controller.broker_counts.on_restored(status.controller.committed)
        return exposition(status, **when)

    return counting


def _counts_all_brokers(_original: Any) -> Any:
    return lambda counts, _batch, _frame, image, _delta: counts.on_restored(image)


def _elects_wherever(begin: Any) -> Any:
    def beginning(sessions: Any, image: Any, now_ms: int, **silent: Any) -> None:
        begin(sessions, image, now_ms, **silent)
        for broker_id in sessions._sessions:
            sessions.elect_for(broker_id)

    return beginning


def _walks_for_the_slowest(slowest_active: Any) -> Any:
    def walking(sessions: Any, image: Any) -> Any:
        sessions._slowest = None
        return slowest_active(sessions, image)

    return walking


def _looks_through_all_brokers(takers: Any) -> Any:
    def walking(brokers: Any) -> Any:
        return takers.__wrapped__(brokers)

    walking.cache_clear = takers.cache_clear  # type: ignore[attr-defined]  # a test begins with that
    return walking


def _sorts_in_one_call(_original: Any) -> Any:
    return lambda items, *, key=None: iter(sorted(items, key=key))


def _never_large(read_large: Any) -> Any:
    def read(door: Any, request: Any, view: Any, **_: Any) -> Any:
        return read_large(door, request, view, is_large=lambda _image: False)

    return read


def _makes_pieces_here(_original: Any) -> Any:
    async def pieces(_threads: Any, parts: Iterator[bytes]) -> AsyncIterator[bytes]:
        while piece := answer_pieces.joined(parts):
            yield piece

    return pieces


def _reads_the_past_here(init: Any) -> Any:
    return lambda past, *parts, **how: init(past, *parts, **(how | {"process": None}))


def _in_one_piece(_original: Any) -> Any:
    return b"".join


def _shows_whole(shown: Any) -> Any:
    return lambda door, command, result, *, is_short: shown(door, command, result, is_short=False)


def _decodes_here(read_body: Any) -> Any:
    async def at_once(work: Any, *args: Any) -> Any:
        return work(*args)

    return lambda request, _threads: read_body(request, SimpleNamespace(run=at_once))


# --- threads


def _without_bound(init: Any) -> Any:
    return lambda pool, name, **how: init(pool, name, **(how | {"unfinished_max": None}))


def _lets_all_wait(init: Any) -> Any:
    return lambda slots, name, **bounds: init(slots, name, **(bounds | {"waiting_max": _NO_BOUND}))


def _shares_one_pool(init: Any) -> Any:
    shared: dict[Any, Any] = {}

    def sharing(pool: Any, name: str, **how: Any) -> None:
        init(pool, name, **how)
        first = shared.setdefault(asyncio.get_running_loop(), pool)
        pool._executor, pool._waiting = first._executor, first._waiting

    return sharing


def _takes_the_pool_of_look_ups(init: Any) -> Any:
    def taking(pool: Any, name: str, **how: Any) -> None:
        init(pool, name, **how)
        loop: Any = asyncio.get_running_loop()
        if loop._default_executor is None:
            loop.set_default_executor(ThreadPoolExecutor(how["threads"]))
        pool._executor = loop._default_executor

    return taking


# --- memory


def _keeps_any_tail(init: Any) -> Any:
    return lambda start, **parts: init(start, **(parts | {"tail_bytes": _NO_BOUND}))


def _shares_nothing(cached: Any) -> Any:
    return cached.__wrapped__


def _learns_nothing(learn: Any) -> Any:
    def forgetting(rows: Any, key: bytes, row: bytes) -> Any:
        partition = learn(rows, key, row)
        rows._known.clear()
        return partition._replace()

    return forgetting


def _weighs_nothing(evicted: Any) -> Any:
    return lambda results, *, now_ms: evicted(replace(results, _bytes=0), now_ms=now_ms)


def _keeps_all_of_it(_original: Any) -> Any:
    return lambda _operation, outcome: pack_outcome(outcome)


def _keeps_results(applying: Any) -> Any:
    def keeping(image: Any, batch: Any, **_: Any) -> Any:
        return applying(image, batch)

    return keeping


def _collects_as_python_does(_original: Any) -> Any:
    async def keep_walking() -> None:
        await asyncio.Event().wait()

    @contextmanager
    def collections() -> Iterator[Any]:
        yield SimpleNamespace(keep_walking=keep_walking)

    return collections


# --- snapshots and polls


def _rests_always(_original: Any) -> Any:
    return lambda keeper: keeper._stopping.wait


def _checks_alone(_original: Any) -> Any:
    async def check(keeper: Any, name: str, run_in_thread: Any) -> None:
        await run_in_thread(keeper._store.check, name)

    return check


def _sends_all_history(reply_to: Any) -> Any:
    return lambda position, **facts: reply_to(position, **(facts | {"delta_bytes_behind": 0}))


def _each_reads_for_itself(cold_read: Any) -> Any:
    class ColdRead(cold_read):  # type: ignore[misc]
        __slots__ = ()
        __eq__ = object.__eq__
        __hash__ = object.__hash__

    return ColdRead


def _keeps_any_answer(answer: Any) -> Any:
    def answering(service: Any, poll: Any) -> Any:
        service._answers_bytes = 0
        return answer(service, poll)

    return answering


def _wakes_with_each_commit(on_applied: Any) -> Any:
    def waking(service: Any, *applied: Any) -> None:
        service._woken_at_ms = -_NO_BOUND
        on_applied(service, *applied)

    return waking


def _forgets_who_waits(wait: Any) -> Any:
    async def waiting(feeds: Any, *which: Any, **until: Any) -> Any:
        with patch("metadata_log.limits.FEEDS_WAITING_MAX", _NO_BOUND):
            work = asyncio.ensure_future(wait(feeds, *which, **until))
            await asyncio.sleep(0)
        return await work

    return waiting


# --- Raft and the log


def _writes_each_batch(on_applied: Any) -> Any:
    def writing(log: Any, *applied: Any) -> None:
        on_applied(log, *applied)
        log.on_rest()

    return writing


def _applies_to_the_end(run: Any) -> Any:
    def running(applied: Any, now: float) -> Any:
        with patch.object(applied, "_now_ms", lambda: 0.0):
            return run(applied, now)

    return running


def _rings_anyway(ring: Any) -> Any:
    def ringing(wake: Any) -> None:
        ring(wake)
        wake._event.set()

    return ringing


def _leaves_it_set(_original: Any) -> Any:
    return lambda wake: wake._event.is_set()


def _forgets_what_was_due(clear: Any) -> Any:
    def clearing(wake: Any) -> bool:
        clear(wake)
        return False

    return clearing


def _ends_all(_original: Any) -> Any:
    def ending(waiters: Any) -> None:
        while waiters._ending:
            waiters._end_next()

    return ending


def _bounds_each_alone(hold_early: Any) -> Any:
    def holding(connection: Any, data: bytes) -> None:
        with patch("metadata_log.limits.EARLY_HELD_BYTES_MAX", _NO_BOUND):
            hold_early(connection, data)

    return holding


def _in_order_of_arrival(add: Any) -> Any:
    def adding(waiters: Any, **what: Any) -> Any:
        future = add(waiters, **what)
        newest = next(waiter for waiter in waiters._waiting if waiter.future is future)
        waiters._waiting.remove(newest)
        waiters._waiting.append(newest)
        return future

    return adding


MUTANTS: Final = (
    Mutant(
        "walks-for-metrics",
        "a scrape counts all partitions, where apply keeps the counts",
        "quorum.status:partition_health",
        _counts_all_partitions,
        Directed("tests/unit/quorum/http/test_metrics.py::test_a_scrape_walks_over_no_topics"),
    ),
    Mutant(
        "walks-over-brokers-for-metrics",
        "a scrape counts and sorts all brokers, where apply keeps the counts",
        "quorum.http.metrics:exposition",
        _counts_brokers_for_a_scrape,
        Directed("tests/unit/quorum/http/test_metrics.py::test_a_scrape_walks_over_no_brokers"),
    ),
    Mutant(
        "counts-all-brokers",
        "each change of a broker counts all of them",
        "quorum.broker_counts:BrokerCounts.on_applied",
        _counts_all_brokers,
        Directed(
            "tests/unit/quorum/test_broker_counts.py::test_counts_are_those_of_a_walk_and_no_batch_walks"
        ),
    ),
    Mutant(
        "looks-for-leaders-everywhere",
        "a new leader looks for partitions without a leader though there is none",
        "quorum.sessions:Sessions.begin",
        _elects_wherever,
        Directed(f"{_SESSION_TESTS}::test_a_claim_looks_for_leaders_only_where_there_is_none"),
    ),
    Mutant(
        "walks-for-the-slowest",
        "while a broker stops, each heartbeat walks over all brokers",
        "quorum.sessions:Sessions.slowest_active",
        _walks_for_the_slowest,
        Directed(
            f"{_SESSION_TESTS}::test_while_a_broker_stops_the_others_are_walked_once_and_not_with_each_heartbeat"
        ),
    ),
    Mutant(
        "walks-for-each-creation",
        "each creation looks through all brokers",
        "quorum.decide.placement:_takers",
        _looks_through_all_brokers,
        Directed(
            "tests/unit/quorum/decide/test_placement.py::"
            "test_brokers_are_looked_through_once_until_one_of_them_changes"
        ),
    ),
    Mutant(
        "sorts-in-one-call",
        "one call sorts all items, however many they are",
        "metadata_log.orders:in_parts",
        _sorts_in_one_call,
        Directed("tests/unit/metadata_log/test_orders.py::test_no_call_sorts_more_than_a_part"),
        elsewhere=(
            "broker_agent.http_api",
            "metadata_log.image.configs",
            "metadata_log.image.topics",
            "metadata_log.image.views",
            "quorum.decide.reassignments",
            "quorum.http.brokers",
            "quorum.partition_health",
        ),
    ),
    Mutant(
        "large-views-on-the-loop",
        "a view of the state is made and encoded in one turn of the loop, however large it is",
        "quorum.http.door:Door.read_large",
        _never_large,
        Directed(
            f"{_ADMINISTRATION_TESTS}::test_a_large_view_is_refused_while_clients_have_not_read_their_answers"
        ),
    ),
    Mutant(
        "pieces-on-the-loop",
        "each piece of a large answer is made and encoded in a turn of the loop",
        "metadata_log.node.answer_pieces:pieces_of",
        _makes_pieces_here,
        Directed("tests/unit/quorum/http/test_many_brokers.py::test_many_brokers_are_listed_as_few_are"),
        elsewhere=("quorum.http.state",),
    ),
    Mutant(
        "past-read-here",
        "past states and lines of the log are computed by the controller's own interpreter",
        "quorum.log.past:Past.__init__",
        _reads_the_past_here,
        Directed("tests/unit/quorum/log/test_past.py::test_a_process_that_was_killed_is_started_anew"),
    ),
    Mutant(
        "large-answers-on-the-loop",
        "the answer to a write on thousands of items is encoded in one turn of the loop",
        "quorum.http.door:is_large",
        always(False),
        Directed(
            f"{_ADMINISTRATION_TESTS}::"
            "test_a_large_answer_to_a_write_is_made_in_a_thread_and_never_refused[False]"
        ),
        elsewhere=("quorum.http.batch",),
    ),
    Mutant(
        "large-bodies-on-the-loop",
        "a request's body is decoded on the loop, however large it is",
        "quorum.http.bodies:read_body",
        _decodes_here,
        Directed("tests/unit/quorum/http/test_bodies.py::test_a_large_body_does_not_hold_the_loop"),
        elsewhere=("quorum.http.batch", "quorum.http.door", "quorum.http.quorum"),
    ),
    Mutant(
        "answers-in-one-piece",
        "a large answer is held whole until its client has read it",
        "metadata_log.node.answer_pieces:joined",
        _in_one_piece,
        Directed(
            f"{_AGENT_TESTS}::"
            "test_metadata_of_many_topics_is_sent_in_pieces_and_cut_short_once_the_session_is_over"
        ),
    ),
    Mutant(
        "batch-answers-whole",
        "the answer to a batch of commands shows all results, however many bytes these have",
        "quorum.http.batch:_shown",
        _shows_whole,
        Directed(
            "tests/unit/quorum/http/test_batch.py::"
            "test_behind_the_bound_of_an_answer_results_show_status_and_offsets"
        ),
    ),
    Mutant(
        "slow-readers-hold-results",
        "a client that reads a state slowly keeps results of requests in memory that are evicted meanwhile",
        "metadata_log.image.metadata_image:MetadataImage.without_results",
        lambda _original: lambda image: image,
        Directed(
            "tests/unit/quorum/http/test_slow_readers.py::"
            "test_a_slow_reader_holds_no_results_that_are_evicted_meanwhile"
        ),
    ),
    Mutant(
        "unread-without-bound",
        "large answers are made however much clients have not read",
        "metadata_log.node.answer_buffers:AnswerBuffers.refusal",
        always(None),
        Directed(
            "tests/unit/metadata_log/node/test_answer_buffers.py::"
            "test_large_answers_are_refused_while_too_much_is_unread"
        ),
    ),
    Mutant(
        "feeds-without-bound",
        "any number of change feeds waits at one controller",
        "quorum.log.topic_feeds:TopicFeeds.wait",
        _forgets_who_waits,
        Directed("tests/unit/quorum/http/test_feed.py::test_feeds_that_wait_are_bounded"),
    ),
    Mutant(
        "work-without-bound",
        "any number of reads waits for a thread",
        "metadata_log.node.threads:Threads.__init__",
        _without_bound,
        Directed(f"{_THREAD_TESTS}::test_work_beyond_the_bound_is_refused_and_other_pools_go_on"),
    ),
    Mutant(
        "one-pool",
        "reads, files and bodies share their threads, so that one kind of work waits for another",
        "metadata_log.node.threads:Threads.__init__",
        _shares_one_pool,
        Directed(f"{_THREAD_TESTS}::test_work_beyond_the_bound_is_refused_and_other_pools_go_on"),
    ),
    Mutant(
        "pieces-by-turns",
        "the pieces of all large answers are made by turns, so that none is whole before nearly all of them are",
        "metadata_log.node.threads:Threads.order_of_pieces",
        always(0),
        Directed(
            f"{_THREAD_TESTS}::"
            "test_the_pieces_of_an_answer_come_before_those_of_later_answers_and_behind_single_work"
        ),
    ),
    Mutant(
        "names-wait-for-reads",
        "reads take the threads that look up host names, so that no link to a named host is made meanwhile",
        "metadata_log.node.threads:Threads.__init__",
        _takes_the_pool_of_look_ups,
        Directed(f"{_THREAD_TESTS}::test_a_host_is_looked_up_while_all_other_work_stands_still"),
    ),
    Mutant(
        "slots-without-bound",
        "any number of requests waits for a past state",
        "metadata_log.node.threads:Slots.__init__",
        _lets_all_wait,
        Directed(f"{_THREAD_TESTS}::test_slots_bound_who_holds_and_who_waits"),
    ),
    Mutant(
        "tail-in-entries-alone",
        "the log's tail behind a snapshot is bounded in entries and not in bytes",
        "quorum.raft.log_start:LogStart.__init__",
        _keeps_any_tail,
        Directed(f"{_ADAPTER_TESTS}::test_the_tail_behind_a_snapshot_is_bounded_in_entries_and_in_bytes"),
    ),
    Mutant(
        "partitions-apart",
        "each new partition of the log is an object of its own",
        "metadata_log.image.partitions:new_partition",
        _shares_nothing,
        Directed(f"{_APPLY_TESTS}::test_equal_partitions_of_the_log_are_one_object"),
        elsewhere=("metadata_log.image.snapshot_rows", "metadata_log.image.topics", "quorum.decide.topics"),
    ),
    Mutant(
        "changes-apart",
        "partitions that change alike in different batches are objects of their own from then on",
        "metadata_log.image.partitions:_shared_change",
        _shares_nothing,
        Directed(f"{_APPLY_TESTS}::test_equal_partitions_of_the_log_are_one_object"),
    ),
    Mutant(
        "rows-apart",
        "each partition of a snapshot is an object of its own",
        "metadata_log.image.snapshot_rows:SnapshotRows._learn",
        _learns_nothing,
        Directed("tests/unit/metadata_log/test_snapshot_rows.py::test_equal_partitions_are_one_object"),
    ),
    Mutant(
        "results-by-number-alone",
        "the kept answers to requests are bounded in number and not in bytes",
        "metadata_log.image.results:RequestResults.evicted",
        _weighs_nothing,
        Directed(f"{_APPLY_TESTS}::test_results_are_bounded_in_bytes_whether_loaded_or_followed"),
    ),
    Mutant(
        "answers-kept-whole",
        "the kept answer to a request repeats what the log's records say",
        "quorum.written:kept",
        _keeps_all_of_it,
        Directed(
            "tests/unit/quorum/test_controller.py::test_a_repeated_creation_is_answered_as_the_first_was"
        ),
        elsewhere=("quorum.controller",),
    ),
    Mutant(
        "answers-kept-by-brokers",
        "brokers keep the answers to requests, though controllers alone are asked for them",
        "broker_agent.follower:applying",
        _keeps_results,
        Directed("tests/unit/broker_agent/test_follower.py::test_it_keeps_no_answers_to_requests"),
    ),
    Mutant(
        "controllers-collect-long",
        "the cycle collector of a controller walks over its whole image",
        "quorum.server:short_collections",
        _collects_as_python_does,
        Directed("tests/unit/quorum/test_server.py::test_a_controllers_process_keeps_its_collections_short"),
    ),
    Mutant(
        "brokers-collect-long",
        "the cycle collector of a broker walks over its whole image",
        "broker_agent.process:short_collections",
        _collects_as_python_does,
        Directed(f"{_AGENT_TESTS}::test_a_brokers_process_keeps_its_collections_short"),
    ),
    Mutant(
        "walked-again",
        "objects that outlived a long collection are walked again by the next one",
        "metadata_log.node.collector:ShortCollections.walked",
        always(None),
        Directed(
            "tests/unit/metadata_log/node/test_collector.py::test_what_has_outlived_a_long_walk_is_frozen"
        ),
    ),
    Mutant(
        "snapshot-always-rests",
        "the writer of a snapshot rests three times as long as it works although nothing is appended to the log",
        "quorum.log.snapshot_keeper:SnapshotKeeper._resting",
        _rests_always,
        Directed(f"{_KEEPER_TESTS}::test_the_writer_of_a_snapshot_rests_while_the_log_grows"),
    ),
    Mutant(
        "snapshot-never-rests",
        "the writer of a snapshot never rests for the interpreter's sake while the log grows",
        "quorum.log.snapshot_keeper:SnapshotKeeper._resting",
        lambda _original: lambda _keeper: lambda _seconds: None,
        Directed(f"{_KEEPER_TESTS}::test_the_writer_of_a_snapshot_rests_while_the_log_grows"),
    ),
    Mutant(
        "digest-at-each-start",
        "each start counts the state digest of its snapshot's records again",
        "snapshots.kept_digest:KeptDigest.buckets",
        always(None),
        Directed(
            "tests/unit/broker_agent/test_cache.py::test_the_next_start_need_not_count_the_snapshots_records"
        ),
    ),
    Mutant(
        "a-check-for-each-download",
        "each of the downloads that begin together has the whole snapshot checked",
        "quorum.log.snapshot_keeper:SnapshotKeeper.check",
        _checks_alone,
        Directed(
            f"{_KEEPER_TESTS}::test_downloads_that_begin_together_share_a_check_and_a_later_one_has_its_own"
        ),
    ),
    Mutant(
        "all-history",
        "a broker without a cache is sent the whole log although a snapshot is smaller",
        "quorum.fetch.position:reply_to",
        _sends_all_history,
        Directed("tests/unit/quorum/fetch/test_position.py::test_what_a_position_is_told"),
        elsewhere=("quorum.fetch.service",),
    ),
    Mutant(
        "a-read-for-each-poll",
        "frames that several polls ask for are read from segments once for each poll",
        "quorum.fetch.service:_ColdRead",
        _each_reads_for_itself,
        Directed(f"{_FETCH_TESTS}::test_polls_for_the_same_frames_share_one_read"),
    ),
    Mutant(
        "polls-answers-by-number",
        "encoded answers are kept for further polls however many bytes they have",
        "quorum.fetch.service:FetchService._answer",
        _keeps_any_answer,
        Directed(f"{_FETCH_TESTS}::test_answers_that_are_kept_for_further_polls_are_bounded_in_bytes"),
    ),
    Mutant(
        "wakes-with-each-commit",
        "each of the commits in quick succession wakes all parked polls",
        "quorum.fetch.service:FetchService.on_applied",
        _wakes_with_each_commit,
        Directed(f"{_FETCH_TESTS}::test_commits_in_quick_succession_are_one_answer"),
    ),
    Mutant(
        "a-write-for-each-batch",
        "each batch that is applied is written to its segment by itself",
        "quorum.log.committed_log:CommittedLog.on_applied",
        _writes_each_batch,
        Directed(
            "tests/unit/quorum/log/test_committed_log.py::test_what_is_applied_without_a_rest_is_one_write"
        ),
    ),
    Mutant(
        "replays-in-one-turn",
        "a node applies all that is committed in one turn of the loop",
        "quorum.raft.applied_entries:AppliedEntries._run",
        _applies_to_the_end,
        Directed(f"{_ADAPTER_TESTS}::test_a_long_replay_lets_others_have_their_turn"),
    ),
    Mutant(
        "rings-though-put-off",
        "a timer that was put off wakes the pump at its former time, too",
        "quorum.raft.wake:Wake._ring",
        _rings_anyway,
        Directed(f"{_WAKE_TESTS}::test_a_timer_that_is_put_off_rings_once"),
    ),
    Mutant(
        "pumps-twice",
        "the pump at the end of a sync is followed by another that finds nothing to do",
        "quorum.raft.wake:Wake.clear",
        _leaves_it_set,
        Directed(f"{_ADAPTER_TESTS}::test_a_lone_write_takes_two_pumps_of_a_voter_that_is_alone"),
    ),
    Mutant(
        "pumps-too-seldom",
        "behind a pump that only begins the next sync, a replay waits for the next event",
        "quorum.raft.wake:Wake.clear",
        _forgets_what_was_due,
        Directed(f"{_ADAPTER_TESTS}::test_a_pump_that_only_begins_a_sync_forgets_nothing_that_is_due"),
    ),
    Mutant(
        "waits-for-the-regular-check",
        "a new leader goes on with a fencing only at its next regular look at the sessions",
        "quorum.periodic:SessionChecks.on_activity",
        always(None),
        Directed("tests/unit/quorum/test_periodic.py::test_who_becomes_active_checks_at_once"),
    ),
    Mutant(
        "wakes-in-order-of-arrival",
        "a request that waits for earlier records is woken after those that arrived before it and wait for later ones",
        "quorum.waiters:Waiters.add",
        _in_order_of_arrival,
        Directed(
            "tests/unit/quorum/test_waiters.py::test_all_are_woken_whose_records_are_applied_and_no_others"
        ),
    ),
    Mutant(
        "ends-all-at-once",
        "all whose wait is over learn of it in one turn",
        "quorum.waiters:Waiters._end_in_slices",
        _ends_all,
        Directed("tests/unit/quorum/test_waiters.py::test_many_learn_in_slices_that_their_time_is_up"),
    ),
    Mutant(
        "holds-any-bodies",
        "large bodies of requests are held, however many clients send them",
        "metadata_log.node.body_buffers:BodyBuffers.more",
        always(None),
        Directed(
            "tests/unit/metadata_log/node/test_body_buffers.py::"
            "test_a_large_body_is_refused_while_others_hold_too_much"
        ),
    ),
    Mutant(
        "keeps-all-that-is-early",
        "what clients send behind their polls is bounded for each of them alone",
        "quorum.http.poll_connection:PollConnection._hold_early",
        _bounds_each_alone,
        Directed(
            "tests/unit/quorum/http/test_poll_connection.py::"
            "test_what_all_send_while_their_polls_wait_is_bounded"
        ),
    ),
    Mutant(
        "sleep-is-silence",
        "a node that was suspended believes a stranger, as if its leader had been silent",
        "quorum.raft.belief:Belief.note_awake",
        always(None),
        Directed("tests/unit/quorum/raft/test_belief.py::test_a_sleep_is_no_silence"),
    ),
)
