"""Pure: the session, sans-IO, with a fake clock and invented outcomes."""

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from broker_agent.config import BrokerSettings
from broker_agent.follower import Position
from broker_agent.session import (
    ROUND_PAUSE_MAX_MS,
    SUPPORTED_FEATURES,
    Call,
    Fetched,
    Refused,
    Session,
    WaitUntil,
)
from metadata_log.errors import (
    DuplicateBrokerRegistration,
    Fault,
    InconsistentClusterId,
    InvalidRegistration,
    MetadataError,
    NotController,
    OutcomeUnknown,
    StaleBrokerEpoch,
    ThrottlingQuotaExceeded,
    UnsupportedVersion,
)
from metadata_log.ids import BrokerId, NodeId, Uuid
from metadata_log.image.brokers import BrokerImage
from metadata_log.image.metadata_image import EMPTY, MetadataImage
from metadata_log.wire.commands import RegisterBroker, Registered
from metadata_log.wire.fetch import FetchAnswer, FetchKind, FetchRequest

A, B, C = "http://a:1", "http://b:1", "http://c:1"
HERE = Position(100, 3, 77)
INCARNATION = Uuid(bytes(range(16)))
SETTINGS = BrokerSettings(
    cluster_id="A" * 22,
    broker_id=BrokerId(11),
    data_dir=Path("unused"),
    controllers=(A, B, C),
    listen_http=("127.0.0.1", 9092),
)
REGISTERED = Registered(
    broker_epoch=7,
    controller_id=NodeId(1),
    controller_epoch=3,
    high_watermark=100,
    session_timeout_ms=3_000,
    max_wait_ms=1_000,
)


def a_session(
    *, seed: int = 0, previous_broker_epoch: int = -1, settings: BrokerSettings = SETTINGS
) -> Session:
    return Session(
        settings,
        incarnation_id=INCARNATION,
        log_dirs=(Uuid(bytes([1]) * 16),),
        endpoints=(),
        previous_broker_epoch=previous_broker_epoch,
        rng=random.Random(seed),
    )


def called(session: Session, now_ms: int) -> Call:
    todo = session.next_step(now_ms, HERE)
    assert isinstance(todo, Call), f"not a call but {todo}"
    return todo


def refuse(session: Session, now_ms: int, error: MetadataError, url: str | None = None) -> None:
    session.on_refused(now_ms, Refused(error=error, controller_url=url))


def answer(
    session: Session,
    call: Call,
    *,
    at_ms: int | None = None,
    session_timeout_ms: int | None = None,
    **told: Any,
) -> None:
    """Let a fetch be answered, at once unless `at_ms` says when."""
    head: dict[str, Any] = {
        "kind": FetchKind.DELTA,
        "high_watermark": 0,
        "log_start_offset": 0,
        "controller_id": NodeId(1),
        "controller_epoch": 3,
        "broker_state": None,
        "should_shut_down": False,
    }
    fetched = Fetched(answer=FetchAnswer(**(head | told)), frames=b"", session_timeout_ms=session_timeout_ms)
    session.on_fetched(call.sent_ms if at_ms is None else at_ms, call, fetched)


def a_registered_session(now_ms: int = 0) -> Session:
    session = a_session()
    called(session, now_ms)
    session.on_registered(REGISTERED)
    return session


def image_with(
    *, fenced: bool = False, broker_epoch: int = 7, incarnation_id: Uuid = INCARNATION
) -> MetadataImage:
    broker = BrokerImage(
        BrokerId(11), incarnation_id, broker_epoch, (), (), None, fenced, False, (Uuid(bytes(16)),), None
    )
    return replace(EMPTY, brokers=EMPTY.brokers.set(BrokerId(11), broker))


# --- what is asked


def test_it_registers_first_and_then_fetches_from_where_it_stands() -> None:
    session = a_session(previous_broker_epoch=5)
    call = called(session, 1_000)
    assert isinstance(call.request, RegisterBroker)
    assert call.url == A
    assert call.request.previous_broker_epoch == 5
    assert call.request.features == SUPPORTED_FEATURES
    session.on_registered(REGISTERED)
    fetch = called(session, 1_001).request
    assert isinstance(fetch, FetchRequest)
    assert (fetch.broker_epoch, fetch.fetch_offset, fetch.last_epoch, fetch.last_crc) == (7, 100, 3, 77)
    assert fetch.applied_offset == 100
    assert not fetch.want_shut_down


def test_only_a_live_session_parks_its_fetch() -> None:
    """Out of contact, the answer itself is wanted: the first fetch, and the first after a silence, wait for nothing."""
    session = a_registered_session()
    first = called(session, 0)
    assert isinstance(first.request, FetchRequest)
    assert first.request.max_wait_ms == 0
    answer(session, first)
    second = called(session, 5)
    assert isinstance(second.request, FetchRequest)
    assert second.request.max_wait_ms == 1_000
    assert second.silence_max_ms == 1_500
    late = called(session, 3_000)
    assert isinstance(late.request, FetchRequest)
    assert late.request.max_wait_ms == 0


def test_a_wish_is_in_the_next_fetch() -> None:
    session = a_registered_session()
    session.want_shut_down = session.want_fence = True
    fetch = called(session, 0).request
    assert isinstance(fetch, FetchRequest)
    assert fetch.want_shut_down
    assert fetch.want_fence


def test_a_farewell_waits_for_nothing_and_needs_an_epoch() -> None:
    assert a_session().farewell(0, HERE) is None
    session = a_registered_session()
    answer(session, called(session, 0))
    farewell = session.farewell(10, HERE)
    assert farewell is not None
    assert isinstance(farewell.request, FetchRequest)
    assert farewell.request.want_shut_down
    assert farewell.request.max_wait_ms == 0


# --- whom


def test_the_next_controller_is_asked_at_once_and_a_round_ends_in_a_pause() -> None:
    session = a_session()
    urls = []
    for _ in range(3):
        urls.append(called(session, 0).url)
        session.on_unreachable(0)
    assert urls == [A, B, C]
    todo = session.next_step(0, HERE)
    assert isinstance(todo, WaitUntil)
    assert 20 <= todo.at_ms <= 50
    assert isinstance(session.next_step(todo.at_ms - 1, HERE), WaitUntil)
    assert called(session, todo.at_ms).url == A


def test_pauses_grow_to_half_a_second_and_begin_anew_after_an_answer() -> None:
    session, now_ms, pauses = a_session(), 0, []
    for _ in range(20):
        for _ in range(3):
            called(session, now_ms)
            session.on_unreachable(now_ms)
        todo = session.next_step(now_ms, HERE)
        assert isinstance(todo, WaitUntil)
        pauses.append(todo.at_ms - now_ms)
        now_ms = todo.at_ms
    assert pauses[0] <= 50
    assert ROUND_PAUSE_MAX_MS // 2 <= pauses[-1] <= ROUND_PAUSE_MAX_MS
    assert max(pauses) <= ROUND_PAUSE_MAX_MS
    session.on_registered(REGISTERED)
    answer(session, called(session, now_ms))
    for _ in range(3):
        called(session, now_ms)
        session.on_unreachable(now_ms)
    todo = session.next_step(now_ms, HERE)
    assert isinstance(todo, WaitUntil)
    assert todo.at_ms - now_ms <= 50


def test_many_brokers_do_not_pause_in_step() -> None:
    ends = set()
    for seed in range(30):
        session = a_session(seed=seed)
        for _ in range(3):
            called(session, 0)
            session.on_unreachable(0)
        todo = session.next_step(0, HERE)
        assert isinstance(todo, WaitUntil)
        ends.add(todo.at_ms)
    assert len(ends) > 10


def test_the_named_controller_is_asked_next_even_if_it_is_not_configured() -> None:
    session = a_session()
    refuse(session, 0, NotController("not me"), C)
    assert called(session, 0).url == C
    refuse(session, 0, NotController("not me"), "http://new:1")
    assert called(session, 0).url == "http://new:1"
    session.on_registered(REGISTERED)
    assert called(session, 0).url == "http://new:1"
    session.on_unreachable(0)
    assert called(session, 0).url == A


def test_a_name_without_tls_is_not_followed_where_the_settings_have_it() -> None:
    """Goal: neither the broker's own token nor those that it forwards leave unencrypted."""
    session = a_session(settings=replace(SETTINGS, controllers=("https://a:1", "https://b:1")))
    refuse(session, 0, NotController("not me"), "http://new:1")
    assert called(session, 0).url == "https://b:1"
    refuse(session, 0, NotController("not me"), "https://new:1")
    assert called(session, 0).url == "https://new:1"


def test_controllers_that_name_each_other_end_in_a_pause() -> None:
    session, asked = a_session(), []
    for _ in range(50):
        todo = session.next_step(0, HERE)
        if isinstance(todo, WaitUntil):
            break
        asked.append(todo.url)
        refuse(session, 0, NotController("not me"), B if todo.url == A else A)
    assert asked == [A, B, C]


def test_ever_new_names_end_in_a_pause_too() -> None:
    session = a_session()
    for number in range(50):
        if isinstance(session.next_step(0, HERE), WaitUntil):
            break
        refuse(session, 0, NotController("not me"), f"http://new:{number}")
    assert number < 15


def test_it_stays_with_the_controller_that_answers() -> None:
    session = a_session()
    refuse(session, 0, NotController("not me"), B)
    session.on_registered(REGISTERED)
    for now_ms in range(0, 5_000, 500):
        call = called(session, now_ms)
        assert call.url == B
        answer(session, call)


@pytest.mark.parametrize("error", [OutcomeUnknown("commit timed out"), Fault("its bug"), NotController("?")])
def test_a_controller_in_trouble_is_left_for_the_next(error: MetadataError) -> None:
    session = a_registered_session()
    refuse(session, 0, error)
    assert called(session, 0).url == B


def test_a_busy_controller_is_given_time() -> None:
    session = a_registered_session()
    refuse(session, 0, ThrottlingQuotaExceeded("too many"))
    assert isinstance(session.next_step(0, HERE), WaitUntil)
    assert called(session, 50).url == A


# --- refusals


def test_a_stale_epoch_registers_again_as_the_same_incarnation() -> None:
    session = a_registered_session()
    answer(session, called(session, 0))
    refuse(session, 10, StaleBrokerEpoch("who?"))
    assert session.broker_epoch is None
    assert not session.is_alive(10)
    request = called(session, 10).request
    assert isinstance(request, RegisterBroker)
    assert request.incarnation_id == INCARNATION
    assert request.previous_broker_epoch == 7  # nothing was lost: this process never ended


def test_an_epoch_that_is_stale_at_once_is_no_tight_circle() -> None:
    session = a_registered_session()
    refuse(session, 0, StaleBrokerEpoch("who?"))
    assert isinstance(session.next_step(0, HERE), WaitUntil)


def test_a_duplicate_is_retried_until_the_timeout_and_then_named() -> None:
    session, now_ms, attempts = a_session(settings=replace(SETTINGS, registration_timeout_ms=5_000)), 1_000, 0
    error: MetadataError | None = None
    while error is None:
        todo = session.next_step(now_ms, HERE)
        if isinstance(todo, WaitUntil):
            now_ms = todo.at_ms
            continue
        attempts += 1
        try:
            refuse(session, now_ms, DuplicateBrokerRegistration("the one at 10.0.0.7"))
        except DuplicateBrokerRegistration as raised:
            error = raised
    assert error.message.startswith("broker 11 is still registered elsewhere")
    assert "10.0.0.7" in error.message
    assert error.family == "Rejected"
    assert 6_000 <= now_ms <= 6_000 + ROUND_PAUSE_MAX_MS
    assert 10 <= attempts <= 60


def test_a_duplicate_that_ends_is_forgotten() -> None:
    session = a_session(settings=replace(SETTINGS, registration_timeout_ms=5_000))
    refuse(session, 0, DuplicateBrokerRegistration("the other"))
    session.on_registered(REGISTERED)
    answer(session, called(session, 100))
    refuse(session, 60_000, StaleBrokerEpoch("who?"))
    refuse(session, 60_000, DuplicateBrokerRegistration("the other"))  # a fresh wait, so no error
    assert isinstance(session.next_step(60_000, HERE), WaitUntil)


@pytest.mark.parametrize(
    "error",
    [InconsistentClusterId("x"), InvalidRegistration("x"), UnsupportedVersion("x"), StaleBrokerEpoch("x")],
)
def test_what_a_human_must_solve_is_raised(error: MetadataError) -> None:
    with pytest.raises(type(error)):
        refuse(a_session(), 0, error)


# --- the deadline


def test_the_deadline_runs_from_when_the_answered_fetch_was_sent_less_the_drift() -> None:
    session = a_registered_session()
    assert not session.is_alive(0)
    assert session.left_ms(0) == 0
    sent = called(session, 10_000)
    assert not session.is_alive(10_000)
    answer(session, sent)  # however late the answer comes
    assert session.deadline_ms == 10_000 + 2_970
    assert session.is_alive(12_969)
    assert not session.is_alive(12_970)
    assert session.left_ms(12_000) == 970
    assert session.left_ms(20_000) == 0


def test_a_refused_or_unanswered_fetch_renews_nothing() -> None:
    session = a_registered_session()
    answer(session, called(session, 0))
    called(session, 2_000)
    session.on_unreachable(2_900)
    refuse(session, 2_900, NotController("not me"))
    assert not session.is_alive(2_970)


def test_may_serve_needs_a_live_session_and_our_own_epoch_unfenced() -> None:
    session = a_registered_session()
    assert not session.may_serve(0, image_with())
    answer(session, called(session, 0))
    assert session.may_serve(0, image_with())
    assert not session.may_serve(0, image_with(fenced=True))
    assert not session.may_serve(0, image_with(broker_epoch=6))
    assert not session.may_serve(0, image_with(incarnation_id=Uuid(bytes([9]) * 16)))
    assert not session.may_serve(0, EMPTY)
    assert not session.may_serve(2_970, image_with())
    refuse(session, 100, StaleBrokerEpoch("who?"))
    assert not session.may_serve(100, image_with())


@pytest.mark.parametrize("kind", [FetchKind.DELTA, FetchKind.IMAGE])
def test_after_a_session_that_ended_it_serves_only_once_it_has_read_what_was_written_meanwhile(
    kind: FetchKind,
) -> None:
    """Its fencing may stand there, behind more than one answer holds: an image from before it shows the broker unfenced."""
    session = a_registered_session()
    answer(session, called(session, 0))
    before, after = replace(image_with(), end_offset=100), replace(image_with(), end_offset=300)
    answer(session, called(session, 2_000), high_watermark=200)
    assert session.may_serve(2_000, before), "in contact all the time: no fencing stands above"
    late = called(session, 5_000)
    answer(session, late, at_ms=5_010, kind=kind, high_watermark=300)
    assert session.is_alive(5_010)
    assert not session.may_serve(5_010, before)
    answer(session, called(session, 5_020), high_watermark=400)
    assert not session.may_serve(5_020, before)
    assert session.may_serve(5_020, after)


def test_a_session_that_ends_while_its_answer_travels_has_ended() -> None:
    session = a_registered_session()
    answer(session, called(session, 0))
    sent = called(session, 2_900)
    answer(session, sent, at_ms=3_500, high_watermark=300)
    assert session.is_alive(3_500)
    assert not session.may_serve(3_500, replace(image_with(), end_offset=299))
    assert session.may_serve(3_500, replace(image_with(), end_offset=300))


def test_a_history_that_was_put_back_is_read_to_its_own_end() -> None:
    session = a_registered_session()
    answer(session, called(session, 0), high_watermark=1_000)
    answer(session, called(session, 10), kind=FetchKind.DIVERGING, high_watermark=50)
    assert session.may_serve(20, replace(image_with(), end_offset=50))


def test_an_image_in_place_of_what_follows_is_read_to_the_end_before_anybody_is_served() -> None:
    """Its own history may be another than the quorum's, which fenced it for that below the high watermark."""
    session = a_registered_session()
    answer(session, called(session, 0), high_watermark=40)
    answer(session, called(session, 10), kind=FetchKind.IMAGE, high_watermark=50)
    assert not session.may_serve(20, replace(image_with(), end_offset=49))
    assert session.may_serve(20, replace(image_with(), end_offset=50))


def test_the_timeout_is_the_one_of_the_newest_answer() -> None:
    """An operator may change it while brokers stay registered."""
    session = a_registered_session()
    answer(session, called(session, 0))
    assert session.deadline_ms == 2_970
    answer(session, called(session, 100), session_timeout_ms=1_000)
    assert session.deadline_ms == 100 + 990
    fetch = called(session, 200)
    assert isinstance(fetch.request, FetchRequest)
    assert (fetch.request.max_wait_ms, fetch.silence_max_ms) == (333, 333 + 166)
    answer(session, fetch, session_timeout_ms=9_000)
    fetch = called(session, 300)
    assert isinstance(fetch.request, FetchRequest)
    assert fetch.request.max_wait_ms == 1_000


@pytest.mark.parametrize("seed", range(50))
def test_it_never_serves_at_or_after_the_controllers_fencing(seed: int) -> None:
    """Goal: self-fencing is never later than the controller's. Method: random delays each way, clocks that drift by
    up to the stated bound; the controller fences session_timeout_ms of its own clock after a fetch last arrived.
    """
    rng = random.Random(seed)
    ours = 1 + rng.uniform(-0.0099, 0.0099)  # rate of our clock; theirs is the true one
    session, now = a_registered_session(), 0.0
    last_arrival = None
    image = image_with()
    for _ in range(200):
        sent = called(session, int(now * ours))
        arrives = now + rng.expovariate(1 / 200)
        answered = arrives + rng.expovariate(1 / 400)
        if last_arrival is not None and arrives >= last_arrival + 3_000:
            fenced_at = last_arrival + 3_000
            assert not session.may_serve(int(fenced_at * ours) + 1, image)
            return
        last_arrival = arrives
        now = answered
        answer(session, sent)
        assert session.deadline_ms is not None
        assert session.deadline_ms / ours <= last_arrival + 3_000
