"""Edge: access control lists on the command line: listed, explained, created and deleted."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from ops import cli
from tests.support.told_node import Reply, node

ACL = {
    "resource_type": "TOPIC",
    "resource_name": "ord",
    "pattern_type": "PREFIXED",
    "principal": "User:ann",
    "host": "*",
    "operation": "READ",
    "permission_type": "ALLOW",
}
LISTED = {
    "end_offset": 9,
    "controller_epoch": 1,
    "enforced": False,
    "items": [ACL | {"id": "QAAAAAAAAAAAAAAAAAAAAQ"}],
}
FINE = {"error": None, "message": None}
OFFSETS = {"offsets": {"base": 5, "end": 6}}


def run(*words: str, answers: Sequence[Any], code: int = 0) -> list[tuple[str, str, Any]]:
    """Return what was asked; `answers` are given in order, the last one again and again."""
    left = list(answers)
    with node() as told:
        told.answer = lambda _: Reply(body=json.dumps(left.pop(0) if len(left) > 1 else left[0]).encode())
        assert cli.main(["acls", *words, "--bootstrap", told.url]) == code
        return [(seen.method, seen.path, json.loads(seen.body or b"null")) for seen in told.seen]


def test_acls_are_listed_and_whether_they_count_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    (asked,) = run("list", "--resource", "topic:orders", "--pattern", "match", answers=[LISTED])
    query = "resource_type=TOPIC&resource_name=orders&pattern_type=MATCH"
    assert asked == ("GET", f"/v1/acls?{query}", None)
    shown = capsys.readouterr()
    assert shown.out.splitlines()[1].split() == ["ALLOW", "User:ann", "*", "READ", "TOPIC", "ord", "PREFIXED"]
    assert "ACLs do not count" in shown.err


@pytest.mark.parametrize(
    ("verdict", "code", "told"),
    [
        (
            {"allowed": True, "why": "rule", "rule": LISTED["items"][0]},  # type: ignore[index]
            0,
            (
                "User:ann may WRITE topic orders: ACL QAAAAAAAAAAAAAAAAAAAAQ allows User:ann READ on each topic whose name "
                "begins with ord from host *"
            ),
        ),
        (
            {"allowed": False, "why": "no ACL allows it", "rule": None},
            3,
            "User:ann may not WRITE topic orders: no ACL allows it",
        ),
    ],
)
def test_an_explanation_names_the_rule(
    capsys: pytest.CaptureFixture[str], verdict: dict[str, Any], code: int, told: str
) -> None:
    (asked,) = run("explain", "User:ann", "WRITE", "topic:orders", answers=[verdict], code=code)
    assert asked[1] == "/v1/acls/explain?principal=User%3Aann&operation=WRITE&resource=topic%3Aorders"
    assert capsys.readouterr().out.strip() == told


@pytest.mark.parametrize("enforced", [True, False, None])
def test_acls_are_created_one_for_each_operation(
    enforced: bool | None, capsys: pytest.CaptureFixture[str]
) -> None:
    """Goal: one that creates what does not count is told so, also by a program."""
    words = ("--principal", "User:ann", "--operation", "READ", "--operation", "WRITE", "--prefixed")
    asked, _ = run(
        *("create", *words, "--resource", "topic:ord", "-o", "json"),
        answers=[{"acls": [FINE, FINE], **OFFSETS}, LISTED | {"enforced": enforced}],
    )
    said = capsys.readouterr()
    assert json.loads(said.out)["enforced"] is enforced
    assert ("ACLs do not count" in said.err) is (enforced is False)
    assert asked == (
        "POST",
        "/v1/acls",
        {"acls": [ACL, ACL | {"operation": "WRITE"}], "all_or_nothing": False},
    )
    refused = {"error": "INVALID_REQUEST", "message": "no"}
    words = ("--principal", "User:ann", "--operation", "ALL", "--deny", "--host", "10.0.0.1")
    asked, _ = run(
        *("create", *words, "--resource", "cluster"), answers=[{"acls": [refused], **OFFSETS}], code=3
    )
    assert asked[2]["acls"][0]["resource_name"] == "kafka-cluster"
    assert asked[2]["acls"][0]["permission_type"] == "DENY"


@pytest.mark.parametrize(
    ("operation", "resource"),
    [
        ("DescribeConfigs", "Topic:orders"),
        ("describe-configs", "TOPIC:orders"),
        ("DESCRIBE_CONFIGS", "topic:orders"),
    ],
)
def test_operations_and_types_may_be_written_as_kafkas_tools_write_them(
    operation: str, resource: str
) -> None:
    answer = {"allowed": True, "why": "super user", "rule": None}
    (asked,) = run("explain", "User:ann", operation, resource, answers=[answer])
    assert (
        asked[1] == "/v1/acls/explain?principal=User%3Aann&operation=DESCRIBE_CONFIGS&resource=topic%3Aorders"
    )


def test_a_deletion_goes_on_until_nothing_is_left(capsys: pytest.CaptureFixture[str]) -> None:
    """C16: each step is one request, and whoever ends it can begin again."""
    step = {"filters": [{**FINE, "acls": [ACL]}], "deleted": 1, "left": 1, **OFFSETS}
    asked = run("delete", "--yes", "--principal", "User:ann", answers=[step, step | {"left": 0}])
    assert [each[2] for each in asked] == [{"filters": [{"principal": "User:ann"}], "in_steps": True}] * 2
    shown = capsys.readouterr()
    assert len(shown.out.splitlines()) == 3
    assert "1 deleted, 1 are left" in shown.err


def test_all_acls_are_deleted_only_if_that_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    done = {"filters": [{**FINE, "acls": []}], "deleted": 0, "left": 0, **OFFSETS}
    assert cli.main(["acls", "delete"]) == 2 and "--all" in capsys.readouterr().err
    (asked,) = run("delete", "--yes", "--all", answers=[done])
    assert asked[2]["filters"] == [{}]


def test_a_deletion_by_resource_means_both_patterns_and_the_help_says_so(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """kafka-acls means the literal ones alone."""
    (asked,) = run(
        *("delete", "--resource", "topic:ord", "--yes"),
        answers=[
            {"filters": [{"error": None, "message": None, "acls": []}], "deleted": 0, "left": 0, **OFFSETS}
        ],
    )
    assert "pattern_type" not in asked[2]["filters"][0]
    for verb in ("list", "delete"):
        assert cli.main(["acls", verb, "--help"]) == 0
        assert "default: literal and prefixed ones" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("resource", ["orders", "thing:a", "topic:"])
def test_a_resource_that_is_none_is_refused(capsys: pytest.CaptureFixture[str], resource: str) -> None:
    assert cli.main(["acls", "explain", "User:ann", "READ", resource]) == 2
    assert "is not TYPE:NAME" in capsys.readouterr().err


def test_what_matches_nothing_is_told_and_what_no_client_asks_is_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """As kafka-acls refuses an operation; names that Kafka accepts are told with their cure, and written."""
    words = ("create", "--resource", "topic:orders", "--operation")
    assert run(*words, "CREATE_TOKENS", "--principal", "User:ann", answers=[{}], code=2) == []
    assert "ResourceType TOPIC only supports operations ALL, READ, WRITE" in capsys.readouterr().err
    answers = [{"acls": [FINE], **OFFSETS}]
    asked, _ = run(*words, "READ", "--principal", "user:ann", "--host", "example.com", answers=answers)
    assert asked[2]["acls"][0]["principal"] == "user:ann"
    said = capsys.readouterr().err
    assert (
        "this matches nothing: principal 'user:ann'" in said and "'example.com' is no numeric address" in said
    )


@pytest.mark.parametrize(
    "words",
    [
        ("list", "--principal", "alice"),
        ("explain", "alice", "READ", "topic:orders"),
        ("create", "--principal", "alice", "--operation", "READ", "--resource", "topic:orders"),
        ("delete", "--principal", "alice", "--yes"),
    ],
)
def test_a_principal_without_a_type_is_refused(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*words, answers=[LISTED], code=2) == []
    assert "'alice' has no type: wanted TYPE:NAME, as User:alice" in capsys.readouterr().err
