"""Edge: a request that goes round nodes that are silent, refuse or follow: real servers with scripted answers."""

import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from metadata_log.errors import NotController, OutcomeUnknown, Rejected
from ops.admin.client import ClusterClient, age_text
from ops.admin.exchange import Unreachable, silent
from tests.support.processes import free_port
from tests.support.told_node import Node, Reply, Seen, error, node, not_controller

LONG_S = 3_600.0
"""A time-out that no test lets pass."""
BRIEF_S = 1.0


def client(
    *urls: str, timeout_s: float = LONG_S, said: list[str] | None = None, takes_stale: bool = False
) -> ClusterClient:
    return ClusterClient(
        urls,
        timeout_s=timeout_s,
        rng=random.Random(1),
        say=silent if said is None else said.append,
        takes_stale=takes_stale,
    )


@contextmanager
def frozen() -> Iterator[Node]:
    """Yield a node that accepts connections and reads requests, and answers when the test is over."""
    thaw = threading.Event()

    def answer(_: Seen) -> Reply:
        thaw.wait(LONG_S)
        return Reply(body=b'{"from":"frozen"}')

    with node() as told:
        told.answer = answer
        try:
            yield told
        finally:
            thaw.set()


def test_a_read_is_answered_while_the_first_node_is_frozen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ops.admin.client.SILENT_FOR_S", LONG_S)
    with frozen() as first, node() as second:
        second.answer = lambda _: Reply(body=b'{"from":"second"}')
        asking = client(first.url, second.url)
        assert asking.read("/v1/topics") == {"from": "second"}
        assert asking.silent == {first.url}
        assert asking.read("/v1/topics") == {"from": "second"}
        assert (len(first.seen), len(second.seen)) == (1, 2), "the node that answered is asked first then"
        assert asking.silent == {first.url}, "nothing was heard of it since"
        second.answer = lambda _: not_controller(first.url)
        first.answer = lambda _: Reply(body=b'{"from":"first"}')
        assert asking.read("/v1/topics") == {"from": "first"}
        assert not asking.silent


def test_a_write_goes_on_at_another_node_by_its_request_id() -> None:
    with frozen() as leader, node() as follower, node() as successor:
        successor.answer = lambda _: Reply(body=b'{"offsets":{"base":1,"end":2}}')
        follower.answer = lambda _: not_controller(leader.url if len(follower.seen) < 3 else successor.url)
        assert client(leader.url, follower.url).write("POST", "/v1/topics", {})["offsets"]["end"] == 2
        ids = {seen.request_id for each in (leader, follower, successor) for seen in each.seen}
        assert len(ids) == 1
        assert None not in ids
        assert len(leader.seen) == 1, "what is on its way there is not sent again"


def test_what_is_not_repeatable_goes_to_the_node_that_leads_alone() -> None:
    with frozen() as first, node() as leader:
        client(first.url, leader.url).write("POST", "/v1/quorum/transfer", {"to": None}, repeatable=False)
        assert [seen.method for seen in first.seen] == ["GET"]
        assert [seen.method for seen in leader.seen] == ["GET", "POST"]


def test_a_long_wait_is_said_with_the_nodes_that_are_asked_meanwhile() -> None:
    """Method: the line that says so lets the other node answer."""
    is_said = threading.Event()
    said: list[str] = []

    def say(line: str) -> None:
        said.append(line)
        is_said.set()

    with frozen() as first, node() as second:

        def answer(_: Seen) -> Reply:
            is_said.wait(LONG_S)
            return Reply()

        second.answer = answer
        asking = ClusterClient((first.url, second.url), timeout_s=LONG_S, rng=random.Random(1), say=say)
        assert asking.read("/v1/topics") == {}
        hosts = [one.url.removeprefix("http://") for one in (first, second)]
        assert said == [f"waiting for {hosts[0]} (no answer for 0.5 s); asking {hosts[1]}"]


def leaderless(seen: Seen) -> Reply:
    if seen.path == "/v1/quorum":
        return Reply(body=b'{"observed_until_ms":0,"leader_id":-1}')
    return Reply(body=b'{"is":"old"}') if "consistency=stale" in seen.path else not_controller()


def test_a_read_without_a_leader_is_answered_by_a_follower_which_is_said_once() -> None:
    with node() as follower, frozen() as other:
        follower.answer = leaderless
        said: list[str] = []
        asking = client(other.url, follower.url, said=said, takes_stale=True)
        assert asking.read("/v1/topics?deleted=true") == {"is": "old"}
        assert asking.read("/v1/brokers") == {"is": "old"}
        assert follower.seen[-1].path == "/v1/brokers?consistency=stale", "the leader is not waited for again"
        ages = [line for line in said if line.startswith("as of 00:00:00, ")]
        assert len(ages) == 1
        host = follower.url.removeprefix("http://")
        assert ages[0].endswith(f" old, no leader: {host} answered")


def test_a_follower_that_has_long_known_of_no_leader_is_believed_once_all_were_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Goal: an election is waited for, and a lost majority is not. Method: the time after which all are believed is long."""
    monkeypatch.setattr("ops.admin.search.STALE_AFTER_S", LONG_S)

    def answer_of(seen: Seen) -> Reply:
        reply = leaderless(seen)
        return Reply(reply.status, reply.body, {**reply.headers, "X-Leaderless-Ms": "1000"})

    with node() as follower, frozen() as other:
        follower.answer = answer_of
        asking = client(follower.url, other.url, takes_stale=True)
        assert asking.read("/v1/topics") == {"is": "old"}
        assert len(other.seen) == 1
        with node() as leader:
            leader.answer = lambda _: Reply(body=b'{"is":"new"}')
            asking = client(follower.url, leader.url, takes_stale=True)
            assert asking.read("/v1/topics") == {"is": "new"}, "it knows no more than that it is cut off"


def test_a_refusal_of_a_follower_is_said_to_be_old() -> None:
    """Goal: a topic that an old state lacks is not taken for one that is nowhere."""

    def lacks(seen: Seen) -> Reply:
        return error("UNKNOWN_TOPIC_OR_PARTITION", 404) if "=stale" in seen.path else leaderless(seen)

    with node() as follower:
        follower.answer = lacks
        said: list[str] = []
        with pytest.raises(Rejected):
            client(follower.url, said=said, takes_stale=True).read("/v1/topics/t")
        host = follower.url.removeprefix("http://")
        assert said[-1].endswith(f" old, no leader: {host} answered")


def test_an_active_controller_is_looked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: a program that runs on sees the leader that comes. Method: the time after which it looks is none."""
    monkeypatch.setattr("ops.admin.client.LEADERLESS_S", 0.0)
    with node() as told:
        told.answer = leaderless
        said: list[str] = []
        asking = client(told.url, said=said, takes_stale=True)
        assert asking.read("/v1/topics") == {"is": "old"}
        told.answer = lambda _: Reply(body=b'{"is":"new"}')
        assert asking.read("/v1/topics") == {"is": "new"}
        told.answer = leaderless
        assert asking.read("/v1/topics") == {"is": "old"}
        assert len([line for line in said if line.startswith("as of")]) == 2


def test_the_follower_that_has_more_of_the_log_is_preferred() -> None:
    with node() as behind, node() as ahead:
        for told, end_offset in ((behind, "10"), (ahead, "20")):

            def answer(seen: Seen, end_offset: str = end_offset) -> Reply:
                reply = leaderless(seen)
                return Reply(reply.status, reply.body, {**reply.headers, "X-High-Watermark": end_offset})

            told.answer = answer
        assert client(behind.url, ahead.url, takes_stale=True).get("/v1/topics").url == ahead.url


@pytest.mark.slow
def test_who_insists_on_the_leader_gets_no_stale_answer() -> None:
    with node() as follower:
        follower.answer = leaderless
        with pytest.raises(NotController):
            client(follower.url, timeout_s=BRIEF_S).read("/v1/topics")
        with pytest.raises(NotController):
            client(follower.url, timeout_s=BRIEF_S, takes_stale=True).get("/v1/topics", is_consistent=True)
        assert not [seen.path for seen in follower.seen if "stale" in seen.path]


@pytest.mark.slow
def test_after_a_write_no_answer_may_lack_it() -> None:
    with node() as told:
        told.answer = lambda seen: Reply() if seen.method == "POST" else leaderless(seen)
        asking = client(told.url, timeout_s=BRIEF_S, takes_stale=True)
        asking.write("POST", "/v1/topics", {})
        with pytest.raises(NotController):
            asking.read("/v1/topics")


@pytest.mark.parametrize("is_write", [False, True])
def test_what_all_nodes_refuse_is_refused_though_there_is_time(is_write: bool) -> None:
    asking = client(*(f"http://127.0.0.1:{free_port()}" for _ in range(3)))
    with pytest.raises(Unreachable, match=r"^no node takes the request \(.*Connection refused"):
        asking.write("POST", "/v1/topics", {}) if is_write else asking.read("/v1/topics")


@pytest.mark.slow
@pytest.mark.parametrize(
    "refusal", [("CLUSTER_AUTHORIZATION_FAILED", 403, "Rejected"), ("DAMAGED_FILE", 500, "Fault")]
)
@pytest.mark.parametrize("is_write", [False, True])
def test_what_another_node_refuses_hides_no_answer_under_way(
    refusal: tuple[str, int, str], *, is_write: bool
) -> None:
    """Goal: a node that does not know this user, or is broken, speaks for itself alone. Method: the leader answers then."""
    is_refused = threading.Event()
    with node() as leader, node() as other:

        def good(_: Seen) -> Reply:
            is_refused.wait(LONG_S)
            time.sleep(0.1)
            return Reply(body=b'{"is":"good"}')

        def refuses(_: Seen) -> Reply:
            is_refused.set()
            return error(refusal[0], refusal[1], family=refusal[2])

        leader.answer, other.answer = good, refuses
        asking = client(leader.url, other.url)
        found = asking.write("POST", "/v1/topics", {}) if is_write else asking.read("/v1/topics")
        assert found == {"is": "good"}


def test_a_write_that_may_be_under_way_is_not_called_refused() -> None:
    """Goal: "refused" means that nothing is written. Method: the first node has it and stays silent, the other refuses."""
    with frozen() as leader, node() as other:
        other.answer = lambda _: error("CLUSTER_AUTHORIZATION_FAILED", 403)
        with pytest.raises(OutcomeUnknown):
            client(leader.url, other.url, timeout_s=BRIEF_S).write("POST", "/v1/topics", {})


@pytest.mark.parametrize("is_write", [False, True])
def test_what_the_only_node_that_answers_refuses_is_refused(*, is_write: bool) -> None:
    with node() as only:
        only.answer = lambda _: error("CLUSTER_AUTHORIZATION_FAILED", 403)
        asking = client(only.url, f"http://127.0.0.1:{free_port()}")
        with pytest.raises(Rejected):
            _ = asking.write("POST", "/v1/topics", {}) if is_write else asking.read("/v1/topics")
        assert len(only.seen) == 1


def test_what_only_a_frozen_node_has_is_unknown() -> None:
    with frozen() as only, pytest.raises(OutcomeUnknown):
        client(only.url, timeout_s=BRIEF_S).write("POST", "/v1/topics", {})


def test_controllers_that_have_the_same_are_asked_in_turn() -> None:
    with frozen() as first, node() as second:
        said: list[str] = []
        second.answer = lambda _: Reply(body=b"2")
        answer = client(first.url, said=said).ask_in_turn((first.url, second.url), "/v1/log?from=0")
        assert answer.body == b"2"
        assert len(said) == 1


@pytest.mark.parametrize(
    ("until_ms", "now_ms", "says"),
    [
        (None, 5, "as of an unknown time"),
        (50_531_000, 50_534_900, "as of 14:02:11, 3 s old"),
        (50_531_000, 50_530_000, "as of 14:02:11, 0 s old"),
        (0, 3_900_000, "as of 00:00:00, 1h05m old"),
    ],
)
def test_an_age_is_told_in_whole_seconds(until_ms: int | None, now_ms: int, says: str) -> None:
    assert age_text(until_ms, now_ms) == says
