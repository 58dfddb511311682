"""Sessions of browsers: bounded in number and in time, and no principal ends those of another."""

from itertools import count

from metadata_log.node.console.sessions import (
    AGE_MAX_MS,
    IDLE_MAX_MS,
    SESSIONS_MAX,
    SESSIONS_PER_TOKEN_MAX,
    Sessions,
)


class _Clock:
    now_ms = 0.0


def _sessions() -> tuple[_Clock, Sessions]:
    clock, ids = _Clock(), count()
    return clock, Sessions(now_ms=lambda: clock.now_ms, new_id=lambda: f"id-{next(ids)}")


def test_a_session_ends_once_it_is_idle_for_too_long_and_at_its_age_in_any_case() -> None:
    clock, sessions = _sessions()
    idle, used = sessions.begin("token-a"), sessions.begin("token-b")
    step_ms = IDLE_MAX_MS // 2
    for _ in range(3):
        clock.now_ms += step_ms
        assert sessions.token_of(used) == "token-b"
    assert sessions.token_of(idle) is None and len(sessions) == 1
    while clock.now_ms < AGE_MAX_MS:
        clock.now_ms += step_ms
        assert (sessions.token_of(used) == "token-b") is (clock.now_ms <= AGE_MAX_MS)
    clock.now_ms += 1
    assert sessions.token_of(used) is None and len(sessions) == 0


def test_an_ended_session_and_an_id_of_none_have_no_token() -> None:
    _, sessions = _sessions()
    first = sessions.begin("token-a")
    sessions.end(first)
    sessions.end("never begun")
    assert sessions.token_of(first) is None and sessions.token_of("never begun") is None


def test_a_principals_further_session_ends_its_own_least_recently_used_one() -> None:
    _, sessions = _sessions()
    other = sessions.begin("token-b")
    own = [sessions.begin("token-a") for _ in range(SESSIONS_PER_TOKEN_MAX)]
    assert sessions.token_of(own[0]) == "token-a"  # used again: the second one is the oldest now
    sessions.begin("token-a")
    assert sessions.token_of(own[1]) is None
    assert sessions.token_of(own[0]) == "token-a" and sessions.token_of(other) == "token-b"


def test_the_sessions_of_all_are_bounded_and_the_principal_with_the_most_gives_way() -> None:
    _, sessions = _sessions()
    alone = sessions.begin("token-of-one-session")
    many = [sessions.begin("token-of-two-sessions") for _ in range(2)]
    ids = [sessions.begin(f"token-{number}") for number in range(SESSIONS_MAX - 3)]
    assert len(sessions) == SESSIONS_MAX
    newest = sessions.begin("token-newest")
    assert len(sessions) == SESSIONS_MAX
    assert sessions.token_of(many[0]) is None
    assert all(sessions.token_of(one) for one in (alone, many[1], ids[0], newest))
