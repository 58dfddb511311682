"""Edge: users' passwords on the command line: hashed here, sent to nobody, and never an argument."""

import base64
import io
import json
from pathlib import Path
from typing import Any

import pytest

from metadata_log.node.identity.scram import salted
from ops import cli
from tests.support.told_node import Reply, node

ITEM = {
    "user": "ann",
    "credentials": [
        {"mechanism": "SCRAM-SHA-256", "iterations": 4096},
        {"mechanism": "SCRAM-SHA-512", "iterations": 8192},
    ],
}
DONE = {"users": [{"user": "ann", "error": None, "message": None}], "offsets": {"base": 5, "end": 6}}
PASSWORD = "péncil"


def run(*words: str, answer: Any = DONE, code: int = 0) -> list[tuple[str, str, Any]]:
    with node() as told:
        told.answer = lambda _: Reply(body=json.dumps(answer).encode())
        assert cli.main(["users", *words, "--bootstrap", told.url]) == code
        return [(seen.method, seen.path, json.loads(seen.body or b"null")) for seen in told.seen]


def check_sent(asked: list[tuple[str, str, Any]], mechanism: str, number: int, iterations: int) -> None:
    ((method, path, body),) = asked
    assert (method, path) == ("PATCH", "/v1/users")
    (sent,) = body["upsertions"]
    assert (sent["user"], sent["mechanism"], sent["iterations"]) == ("ann", mechanism, iterations)
    hashed = salted(number, PASSWORD.encode(), base64.b64decode(sent["salt"]), iterations)
    assert base64.b64decode(sent["salted_password"]) == hashed
    assert PASSWORD not in json.dumps(body, ensure_ascii=False)


def test_users_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    (asked,) = run("list", "ann", answer={"end_offset": 9, "controller_epoch": 1, "items": [ITEM]})
    assert asked == ("GET", "/v1/users?user=ann", None)
    assert "SCRAM-SHA-256 (4096 iterations), SCRAM-SHA-512 (8192 iterations)" in capsys.readouterr().out


def test_a_password_comes_from_a_file_from_the_standard_input_or_from_a_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "password"
    file.write_text(f"{PASSWORD}\n")
    check_sent(run("set-scram", "ann", "--password-file", str(file)), "SCRAM-SHA-256", 1, 4096)
    monkeypatch.setattr("sys.stdin", io.StringIO(PASSWORD))
    asked = run(
        "set-scram", "ann", "--password-file", "-", "--mechanism", "SCRAM-SHA-512", "--iterations", "8192"
    )
    check_sent(asked, "SCRAM-SHA-512", 2, 8192)
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr("sys.stdin", terminal)
    monkeypatch.setattr("getpass.getpass", lambda _: PASSWORD)
    check_sent(run("set-scram", "ann"), "SCRAM-SHA-256", 1, 4096)
    answers = iter(["one", "another"])
    monkeypatch.setattr("getpass.getpass", lambda _: next(answers))
    assert run("set-scram", "ann", code=3) == []


@pytest.mark.parametrize("content", ["", "\n", "x" * 1025])
def test_no_password_and_a_very_long_one_are_refused_before_anything_is_sent(
    tmp_path: Path, content: str
) -> None:
    (tmp_path / "p").write_text(content)
    assert run("set-scram", "ann", "--password-file", str(tmp_path / "p"), code=3) == []


def test_without_a_terminal_and_a_file_nothing_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("secret"))
    assert run("set-scram", "ann", code=2) == []
    assert run("set-scram", "ann", "--iterations", "4095", code=2) == []


def test_credentials_of_one_mechanism_or_all_are_deleted(capsys: pytest.CaptureFixture[str]) -> None:
    (asked,) = run("delete-scram", "ann", "--yes", "--mechanism", "SCRAM-SHA-512")
    capsys.readouterr()
    assert asked[2] == {"deletions": [{"user": "ann", "mechanism": "SCRAM-SHA-512"}]}
    page = {"end_offset": 9, "controller_epoch": 1, "items": [ITEM], **DONE}
    _, first, second = run("delete-scram", "ann", "--yes", "-o", "json", answer=page)
    results = json.loads(capsys.readouterr().out)
    assert [one["mechanism"] for one in results] == ["SCRAM-SHA-256", "SCRAM-SHA-512"], "one document"
    assert [each[2]["deletions"][0]["mechanism"] for each in (first, second)] == [
        "SCRAM-SHA-256",
        "SCRAM-SHA-512",
    ]


def test_a_refusal_ends_with_its_code(capsys: pytest.CaptureFixture[str]) -> None:
    refused = {"user": "ann", "error": "RESOURCE_NOT_FOUND", "message": "why"}
    answer = {"users": [refused], "offsets": {"base": 5, "end": 5}}
    run("delete-scram", "ann", "--yes", "--mechanism", "SCRAM-SHA-256", answer=answer, code=3)
    assert "RESOURCE_NOT_FOUND" in capsys.readouterr().out
