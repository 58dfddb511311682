"""Edge: the CLI's client against small real HTTP servers with scripted answers."""

import json
import random
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest

from metadata_log.errors import (
    Fault,
    InvalidSettings,
    MetadataError,
    NotController,
    OutcomeUnknown,
    ThrottlingQuotaExceeded,
    TopicAlreadyExists,
    Unavailable,
)
from ops.admin.client import ClusterClient
from ops.admin.connect import NoBootstrap, bootstrap_from, credentials_from
from ops.admin.exchange import Credentials, Unreachable, silent
from ops.certificates import Authority
from ops.cli import UNAVAILABLE, main
from ops.command_line.options import USAGE
from tests.support.processes import free_port
from tests.support.told_node import CutOff, Reply, Seen, error, node, not_controller

BRIEF_S = 2.0
"""A time-out that must expire: long enough that a busy machine would answer within a part of it."""


def client(*urls: str, timeout_s: float = 60.0) -> ClusterClient:
    return ClusterClient(urls, timeout_s=timeout_s, rng=random.Random(1))


def test_a_redirect_is_followed_at_once_and_remembered() -> None:
    with node() as follower, node() as active:
        follower.answer = lambda _: not_controller(active.url)
        active.answer = lambda _: Reply(body=b'{"items":[1]}')
        asking = client(follower.url)
        assert asking.read("/v1/topics") == {"items": [1]}
        assert asking.read("/v1/brokers") == {"items": [1]}
        assert [seen.path for seen in follower.seen] == ["/v1/topics"]
        assert [seen.path for seen in active.seen] == ["/v1/topics", "/v1/brokers"]


def test_a_dead_node_is_passed_over() -> None:
    with node() as alive:
        assert client(f"http://127.0.0.1:{free_port()}", alive.url).read("/v1/topics") == {}


def test_a_redirect_to_a_dead_node_does_not_end_the_search() -> None:
    """Goal: between a leader's death and the election the followers still name it."""
    dead = f"http://127.0.0.1:{free_port()}"
    with node() as first:
        first.answer = lambda _: not_controller(dead) if len(first.seen) < 3 else Reply()
        assert client(first.url).read("/v1/topics") == {}
        assert len(first.seen) == 3


@pytest.mark.slow
def test_two_nodes_that_name_each_other_end_a_round() -> None:
    with node() as one, node() as other:
        one.answer = lambda _: not_controller(other.url)
        other.answer = lambda _: not_controller(one.url)
        with pytest.raises(NotController, match=f"not within {BRIEF_S:g} s"):
            client(one.url, other.url, timeout_s=BRIEF_S).read("/v1/topics")
        assert len(one.seen) < 20


def test_a_write_keeps_its_request_id_and_each_write_has_its_own() -> None:
    with node() as one, node() as other:
        one.answer = lambda _: not_controller()
        other.answer = lambda _: Reply(201) if len(other.seen) > 1 else not_controller(one.url)
        asking = client(one.url, other.url)
        asking.write("POST", "/v1/topics", {"name": "t"})
        ids = {seen.request_id for seen in one.seen + other.seen}
        bodies = {seen.body for seen in one.seen + other.seen}
        assert len(ids) == 1
        assert None not in ids
        assert bodies == {b'{"name": "t"}'}
        asking.write("DELETE", "/v1/topics/t")
        assert other.seen[-1].request_id not in ids


def without_an_answer(_: Seen) -> Reply:
    raise CutOff


def amid_its_answer(_: Seen) -> Reply:
    return Reply(200, b'{"offsets":', {"Content-Length": "1000"})


@pytest.mark.parametrize("cut_off", [without_an_answer, amid_its_answer])
def test_a_write_cut_off_is_repeated_elsewhere_and_answered(cut_off: Callable[[Seen], Reply]) -> None:
    """A75"""
    with node() as dying, node() as successor:
        dying.answer = cut_off
        successor.answer = lambda _: Reply(body=b'{"offsets":{"base":1,"end":2}}')
        answer = client(dying.url, successor.url).write("POST", "/v1/topics", {})
        assert answer["offsets"]["end"] == 2
        assert successor.seen[0].request_id == dying.seen[0].request_id


@pytest.mark.slow
@pytest.mark.parametrize("cut_off", [without_an_answer, amid_its_answer])
def test_a_write_cut_off_and_never_answered_is_unknown_and_named(cut_off: Callable[[Seen], Reply]) -> None:
    with node() as one:
        one.answer = cut_off
        with pytest.raises(OutcomeUnknown) as caught:
            client(one.url, timeout_s=BRIEF_S).write("POST", "/v1/topics", {})
        assert caught.value.context["request_id"] == one.seen[0].request_id
        assert len({seen.request_id for seen in one.seen if seen.method == "POST"}) == 1


@pytest.mark.slow
def test_a_504_is_repeated_and_stays_unknown_though_the_others_know_nothing() -> None:
    with node() as one, node() as other:
        one.answer = lambda _: error("REQUEST_TIMED_OUT", 504, family="OutcomeUnknown")
        other.answer = lambda _: not_controller()
        with pytest.raises(OutcomeUnknown):
            client(one.url, other.url, timeout_s=BRIEF_S).write("POST", "/v1/topics", {})
        assert len(one.seen) > 1


@pytest.mark.parametrize("is_answered", [False, True], ids=["cut off", "504"])
def test_what_is_not_repeatable_is_sent_to_one_node(is_answered: bool) -> None:
    """Goal: a hand-over of leadership is not done twice. A node that surely did not carry it out is no obstacle."""

    def lose(seen: Seen) -> Reply:
        if seen.method == "GET":
            return Reply()
        if is_answered:
            return error("REQUEST_TIMED_OUT", 504, family="OutcomeUnknown")
        raise CutOff

    dead = f"http://127.0.0.1:{free_port()}"
    with node() as follower, node() as dying, node() as successor:
        follower.answer = lambda _: not_controller(dying.url)
        dying.answer = lose
        asking = client(dead, follower.url, successor.url)
        with pytest.raises(OutcomeUnknown, match=r"^no answer, and it may still take effect"):
            asking.write("POST", "/v1/quorum/transfer", {"to": None}, repeatable=False)
        sent = [
            [seen.path for seen in one.seen if seen.method == "POST"] for one in (follower, dying, successor)
        ]
        assert sent == [[], ["/v1/quorum/transfer"], []]


@pytest.mark.slow
def test_a_write_that_nobody_took_was_not_written() -> None:
    with node() as one:
        one.answer = lambda _: not_controller()
        with pytest.raises(NotController):
            client(one.url, f"http://127.0.0.1:{free_port()}", timeout_s=BRIEF_S).write(
                "POST", "/v1/topics", {}
            )
    with pytest.raises(Unreachable, match="Connection refused"):
        client(f"http://127.0.0.1:{free_port()}", timeout_s=BRIEF_S).write("POST", "/v1/topics", {})


@pytest.mark.slow
def test_a_read_that_is_cut_off_is_never_unknown() -> None:
    def cut_off(_: Seen) -> Reply:
        raise CutOff

    with node() as one:
        one.answer = cut_off
        with pytest.raises(Unreachable):
            client(one.url, timeout_s=BRIEF_S).read("/v1/topics")


def test_a_refusal_ends_it_by_name() -> None:
    with node() as one, node() as other:
        one.answer = lambda _: error("TOPIC_ALREADY_EXISTS", 409, code=36)
        with pytest.raises(TopicAlreadyExists, match="because TOPIC_ALREADY_EXISTS"):
            client(one.url, other.url).write("POST", "/v1/topics", {})
        assert len(one.seen) == 1
        assert other.seen == []


def test_a_fault_ends_it() -> None:
    with node() as one:
        one.answer = lambda _: error("UNKNOWN_SERVER_ERROR", 500, family="Fault")
        with pytest.raises(Fault):
            client(one.url).read("/v1/topics")


@pytest.mark.slow
def test_an_overloaded_node_is_asked_again() -> None:
    with node() as one:
        busy = error("THROTTLING_QUOTA_EXCEEDED", 429, code=89, family="Unavailable")
        one.answer = lambda _: busy if len(one.seen) < 3 else Reply()
        assert client(one.url).read("/v1/topics") == {}
        one.answer = lambda _: busy
        with pytest.raises(ThrottlingQuotaExceeded):
            client(one.url, timeout_s=BRIEF_S).read("/v1/topics")


@pytest.mark.slow
@pytest.mark.parametrize("reply", [Reply(404, b"<html>"), Reply(500, b'{"detail":1}'), Reply(200, b"<html>")])
def test_what_is_not_ours_is_said_to_be(reply: Reply) -> None:
    with node() as one:
        one.answer = lambda _: reply
        with pytest.raises(Unreachable, match=r"answered|not JSON"):
            client(one.url, timeout_s=BRIEF_S).read("/v1/topics")


@pytest.mark.parametrize("host", ["a..b", "ho st", "[::1"])
def test_what_a_node_says_of_itself_may_be_no_address(host: str) -> None:
    with pytest.raises(Unreachable, match="is no address of a node"):
        client("http://h:1").ask_one(f"http://{host}:80", "/readyz")


def test_with_an_authority_nothing_is_sent_in_the_clear() -> None:
    """Goal: no token leaves unencrypted where TLS is asked for, whether the list or another node names such a URL."""
    credentials = Credentials(ssl.create_default_context(), "t" * 43)
    with node() as plain:
        asking = ClusterClient([plain.url], timeout_s=BRIEF_S, rng=random.Random(1), credentials=credentials)
        with pytest.raises(Unreachable, match="https:// addresses"):
            asking.ask_one(plain.url, "/readyz")
        with pytest.raises(Unreachable, match="https:// addresses"):
            asking.write("POST", "/v1/topics", {})  # it was not sent, so its outcome is known
        assert plain.seen == []


def test_the_bootstrap_is_the_flag_then_the_environment_then_the_cluster_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("METAQUORUM_BOOTSTRAP", raising=False)
    with pytest.raises(NoBootstrap, match=r"cluster\.json: No such file"):
        bootstrap_from(None)
    assert main(["topics", "list"]) == USAGE, "nothing was asked, so no network failed"
    folder = tmp_path / "metaquorum-data"
    folder.mkdir()
    for content in ("{", "[]", '{"bootstrap":[]}', '{"bootstrap":[1]}', '{"bootstrap":["h"]}'):
        (folder / "cluster.json").write_text(content)
        with pytest.raises(NoBootstrap, match="--bootstrap"):
            bootstrap_from(None)
    (folder / "cluster.json").write_text('{"bootstrap":["http://h:1"]}')
    assert bootstrap_from(None) == ("http://h:1",)
    monkeypatch.setenv("METAQUORUM_BOOTSTRAP", "http://h:2,http://h:3")
    assert bootstrap_from(None) == ("http://h:2", "http://h:3")
    assert bootstrap_from(" http://h:4/ ") == ("http://h:4",)
    with pytest.raises(ValueError, match="--bootstrap 'h:4': wanted"):
        bootstrap_from("h:4")
    monkeypatch.setenv("METAQUORUM_BOOTSTRAP", "nonsense")
    with pytest.raises(ValueError, match="METAQUORUM_BOOTSTRAP 'nonsense': wanted"):
        bootstrap_from(None)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "kind"), [("Unavailable", Unavailable), ("OutcomeUnknown", OutcomeUnknown)]
)
def test_the_family_says_whether_a_timeout_may_have_written(family: str, kind: type[MetadataError]) -> None:
    """Kafka's REQUEST_TIMED_OUT also tells that a change of voters must wait: surely nothing was written."""
    with node() as told:
        told.answer = lambda _: error("REQUEST_TIMED_OUT", 503, family=family)
        with pytest.raises(kind) as caught:
            client(told.url, timeout_s=BRIEF_S).write("POST", "/v1/quorum/voters", {})
        assert caught.value.family == family


@pytest.mark.slow
def test_who_asks_a_stopped_cluster_is_told_which_file_names_it_and_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("METAQUORUM_BOOTSTRAP", raising=False)
    (tmp_path / "metaquorum-data").mkdir()
    dead = f"http://127.0.0.1:{free_port()}"
    (tmp_path / "metaquorum-data" / "cluster.json").write_text(json.dumps({"bootstrap": [dead]}))
    for verb in (["topics", "list"], ["quorum", "status"]):
        assert main([*verb, "--timeout", f"{BRIEF_S:g}"]) == UNAVAILABLE
        cure = "metaquorum-data/cluster.json names these controllers: start them (metaquorum up)"
        assert cure in capsys.readouterr().err
        assert main([*verb, "--timeout", f"{BRIEF_S:g}", "--bootstrap", dead]) == UNAVAILABLE
        assert "cluster.json" not in capsys.readouterr().err


TOKEN = "t" * 43


@contextmanager
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str, **more: object) -> Iterator[None]:
    """Be where another person's cluster.json lies, with a token in the environment."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "metaquorum-data").mkdir()
    (tmp_path / "metaquorum-data/cluster.json").write_text(json.dumps({"bootstrap": [url], **more}))
    for name in ("BOOTSTRAP", "CA", "CERT", "KEY", "TOKEN_FILE"):
        monkeypatch.delenv(f"METAQUORUM_{name}", raising=False)
    monkeypatch.setenv("METAQUORUM_TOKEN", TOKEN)
    yield


def test_a_token_of_the_environment_does_not_go_to_addresses_of_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with node() as evil, here(tmp_path, monkeypatch, evil.url):
        evil.answer = lambda _: Reply(body=b'{"items":[]}')
        for flags in ([], ["--insecure"]):
            assert main(["topics", "list", *flags]) == 0
            assert (
                "METAQUORUM_TOKEN is not sent to the addresses of metaquorum-data" in capsys.readouterr().err
            )
        assert {seen.authorization for seen in evil.seen} == {None}
        count = len(evil.seen)
        (tmp_path / "token").write_text(TOKEN)
        (tmp_path / "token").chmod(0o600)
        assert main(["topics", "list", "--token-file", "token", "--insecure"]) == 2
        assert len(evil.seen) == count
        # Named by the one who has the token, it gets the token; in the clear only as he says.
        monkeypatch.setenv("METAQUORUM_BOOTSTRAP", evil.url)
        assert main(["topics", "list", "--timeout", "100ms"]) == UNAVAILABLE
        assert "a token goes to https:// addresses alone" in capsys.readouterr().err
        assert len(evil.seen) == count
        assert main(["topics", "list", "--insecure"]) == 0
        assert evil.seen[-1].authorization == f"Bearer {TOKEN}"


def credentials(url: str) -> Credentials:
    """Return what a client shows where only the cluster's file names the address."""
    return credentials_from({}, [url], is_named=False, insecure=False, say=silent)


def test_the_authority_of_a_file_proves_no_server_for_a_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: another person's file names an authority as well. Method: with it no token, with the user's own a token."""
    ca = Authority(tmp_path / "metaquorum-data-of/tls", cluster_id="c").ca
    with here(tmp_path, monkeypatch, "https://h:1", admin={"ca": "tls/ca.crt"}):
        ca.parent.rename(tmp_path / "metaquorum-data/tls")
        of_file = credentials("https://h:1")
        assert of_file.tls is not None and of_file.token is None
        monkeypatch.setenv("METAQUORUM_CA", str(tmp_path / "metaquorum-data/tls/ca.crt"))
        assert credentials("https://h:1").token == TOKEN


@pytest.mark.parametrize("key", ["../../secret.key", "/secret.key", "link/secret.key"])
def test_a_file_of_others_does_not_choose_which_key_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    admin = {"ca": "tls/ca.crt", "cert": "tls/admin.crt", "key": key}
    with here(tmp_path, monkeypatch, "https://h:1", admin=admin):
        (tmp_path / "metaquorum-data/link").symlink_to(tmp_path)
        with pytest.raises(InvalidSettings, match="outside of its directory"):
            credentials("https://h:1")


def test_a_token_goes_along_no_redirect_to_an_address_that_was_not_given() -> None:
    with node() as given, node() as other:
        given.answer = lambda _: not_controller(other.url)
        for also, seen in ((), []), ((other.url,), [f"Bearer {TOKEN}"]):
            credentials = Credentials(None, TOKEN, given=frozenset({given.url, *also}), insecure=True)
            asking = ClusterClient([given.url], timeout_s=0.2, rng=random.Random(1), credentials=credentials)
            with nullcontext() if also else pytest.raises(NotController, match="another node named it"):
                asking.read("/v1/topics")
            assert [each.authorization for each in other.seen] == seen


@pytest.mark.parametrize(
    ("given", "is_sent"),
    [
        ("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", True),
        ("no trace\r\nX: y", False),
        ("", False),
    ],
)
def test_the_trace_context_of_a_script_is_sent(
    monkeypatch: pytest.MonkeyPatch, given: str, is_sent: bool
) -> None:
    monkeypatch.setenv("TRACEPARENT", given)
    with node() as told:
        ClusterClient([told.url], timeout_s=20, rng=random.Random(1)).ask_one(told.url, "/x", timeout_s=20)
    (seen,) = told.seen
    assert seen.traceparent == (given if is_sent else None)
