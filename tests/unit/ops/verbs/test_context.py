"""Edge: clusters by name: which one a line asks, and that its file is the user's own."""

import json
from pathlib import Path

import pytest

from ops import cli
from ops.contexts import contexts_file
from tests.support.told_node import Node, Reply, node


@pytest.fixture(autouse=True)
def own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("METAQUORUM_CONTEXT", raising=False)
    monkeypatch.delenv("METAQUORUM_BOOTSTRAP", raising=False)
    monkeypatch.chdir(tmp_path)


def run(*words: str) -> int:
    return cli.main(list(words))


def topics_of(*nodes: Node) -> None:
    for one in nodes:
        one.answer = lambda _: Reply(body=b'{"items": []}')


def test_a_line_asks_the_cluster_that_is_named_nearest(monkeypatch: pytest.MonkeyPatch) -> None:
    with node() as first, node() as second, node() as third:
        topics_of(first, second, third)
        assert run("context", "set", "one", "--bootstrap", first.url) == 0
        assert run("context", "set", "two", "--bootstrap", second.url) == 0

        def asked(*words: str) -> list[int]:
            before = [len(one.seen) for one in (first, second, third)]
            assert run("topics", "list", *words) == 0
            return [len(one.seen) - was for one, was in zip((first, second, third), before, strict=True)]

        assert asked() == [1, 0, 0], "the first one is in use at once"
        assert asked("--context", "two") == [0, 1, 0]
        assert asked("--bootstrap", third.url) == [0, 0, 1]
        assert run("context", "use", "two") == 0
        assert asked() == [0, 1, 0]
        monkeypatch.setenv("METAQUORUM_CONTEXT", "one")
        assert asked() == [1, 0, 0]
        monkeypatch.setenv("METAQUORUM_BOOTSTRAP", third.url)
        assert asked() == [0, 0, 1]
        assert asked("--context", "two") == [0, 1, 0]
        monkeypatch.delenv("METAQUORUM_BOOTSTRAP")
        monkeypatch.setenv("METAQUORUM_CONTEXT", "")
        assert run("topics", "list") == 2, "no context is chosen, and no cluster is here"


def test_contexts_are_listed_and_forgotten(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("context", "set", "a", "--bootstrap", "http://h:1") == 0
    assert run("context", "set", "b", "--bootstrap", "http://h:2", "--use") == 0
    capsys.readouterr()
    assert run("context", "list", "-o", "json") == 0
    listed = json.loads(capsys.readouterr().out)
    assert [(one["name"], one["in_use"], one["bootstrap"]) for one in listed] == [
        ("a", False, ["http://h:1"]),
        ("b", True, ["http://h:2"]),
    ]
    assert run("context", "delete", "b") == 0
    assert json.loads(contexts_file().read_text())["current"] is None
    assert run("context", "use", "a") == 0 and run("context", "use", "--none") == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["context", "use", "no"], "there is no context 'no'; there are: a"),
        (["context", "delete", "no"], "there is no context 'no'"),
        (["topics", "list", "--context", "no"], "there is no context 'no'"),
        (["topics", "list", "--context", "a", "--bootstrap", "http://h:1"], "leave one out"),
        (["context", "use"], "name a context, or give --none"),
        (["context", "set", "x", "--bootstrap", "h:1"], "wanted http://HOST:PORT"),
        (["context", "set", "x", "--bootstrap", "http://h:1", "--ca", "none.crt"], "there is no file"),
    ],
)
def test_what_cannot_be_is_a_usage_error(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("context", "set", "a", "--bootstrap", "http://h:1") == 0
    assert run(*words) == 2
    assert said in capsys.readouterr().err


def test_a_file_that_others_may_write_is_not_followed(capsys: pytest.CaptureFixture[str]) -> None:
    """Goal: another user cannot choose to whom this user's keys are shown."""
    assert run("context", "set", "a", "--bootstrap", "http://h:1") == 0
    assert contexts_file().stat().st_mode & 0o777 == 0o600
    contexts_file().chmod(0o666)
    assert run("topics", "list") == 3
    assert "another user may write it" in capsys.readouterr().err
    contexts_file().chmod(0o600)
    contexts_file().write_text("{}", encoding="utf-8")
    assert run("topics", "list") == 3
    assert "no file of contexts" in capsys.readouterr().err


def test_a_contexts_files_are_shown_as_if_flags_named_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "token").write_text("secret-of-twenty-letters", encoding="utf-8")
    (tmp_path / "token").chmod(0o600)
    with node() as told:
        topics_of(told)
        words = ["--bootstrap", told.url, "--token-file", str(tmp_path / "token"), "--insecure"]
        assert run("context", "set", "a", *words) == 0
        assert run("topics", "list") == 0, capsys.readouterr().err
        assert [seen.authorization for seen in told.seen] == ["Bearer secret-of-twenty-letters"]


def test_a_file_that_is_no_certificate_or_token_is_refused_when_it_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    junk = tmp_path / "junk"
    junk.write_bytes(bytes(range(256)))
    junk.chmod(0o600)
    for option in ("--ca", "--token-file"):
        assert run("context", "set", "a", "--bootstrap", "https://h:1", option, str(junk)) == 3
        assert str(junk) in capsys.readouterr().err
    assert not contexts_file().exists()
