"""Edge: a file that declares topics, settings, ACLs and quotas, on the command line."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from metadata_log.image.metadata_image import MetadataImage
from metadata_log.records.acls import AclOperation, PatternType, PermissionType, ResourceType
from metadata_log.records.quotas import CLIENT_ID, IP, USER, QuotaEntity
from ops import cli
from ops.admin import live_state
from ops.admin.declared import drift, read_declared
from quorum.decide.acls import Acl, CreateAcls
from quorum.decide.quotas import AlterClientQuotas, EntityChange, QuotaChange
from tests.support.placements import a_cluster

AT = ("--bootstrap", "http://127.0.0.1:1")
TOML = """
[cluster]
"min.insync.replicas" = 2

[topics.t]
partitions = 2
configs = { "retention.ms" = 6 }
"""


@pytest.fixture(autouse=True)
def state(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the verbs find a state, but no controller that could write."""
    image = a_cluster([None] * 3, "t on=1,2/2,3 retention.ms=5").image
    monkeypatch.setattr(live_state, "live_image", lambda _: image)


def a_file(directory: Path, text: str, name: str = "cluster.toml") -> str:
    file = directory / name
    file.write_text(text, encoding="utf-8")
    return str(file)


@pytest.mark.parametrize("words", [["plan"], ["apply", "--dry-run"]])
def test_drift_is_shown_and_has_an_exit_code(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """C20: what is as declared has an empty plan."""
    noun, *more = words
    assert cli.main([noun, a_file(tmp_path, TOML), *more, "-o", "json", *AT]) == 10
    assert json.loads(capsys.readouterr().out) == [
        {"resource": "topic t", "what": "retention.ms", "declared": "6", "now": "5"},
        {"resource": "cluster", "what": "min.insync.replicas", "declared": "2", "now": None},
    ]
    same = a_file(tmp_path, json.dumps({"topics": {"t": {"partitions": 2}}}), "cluster.json")
    assert cli.main([noun, same, *more, *AT]) == 0
    assert "all is as declared" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[topics.t]\npartition = 2", "cluster.toml cannot be read: topics.t: "),
        ('[topics.t]\npartitions = "2"', "topics.t.partitions: expected int | null, got str"),
        ("[brokers.11]\na = [2]", "brokers.11[...]: expected"),
        ("[topics", "cluster.toml cannot be read: "),
        (TOML, "give --yes"),
    ],
)
def test_nothing_is_applied_without_a_sound_file_and_a_yes(
    text: str, why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["apply", a_file(tmp_path, text), *AT]) == 2
    assert why in capsys.readouterr().err


ACCESS = """
[[acls]]
principal = "User:alice"
operations = ["READ", "DESCRIBE"]
resource = "topic:orders"

[[acls]]
principal = "User:bob"
operations = ["ALL"]
resource = "cluster"
deny = true

[[quotas]]
user = "alice"
defaults = ["client_id"]
values = { producer_byte_rate = 5, request_percentage = 2.5 }
"""


def with_access() -> MetadataImage:
    """Return a state with an ACL and a quota that are declared, and others that are not."""
    world = a_cluster([None])
    rules = [("User:alice", AclOperation.READ), ("User:carol", AclOperation.WRITE)]
    acls = tuple(
        Acl(ResourceType.TOPIC, "orders", PatternType.LITERAL, who, "*", what, PermissionType.ALLOW)
        for who, what in rules
    )
    parts = (QuotaEntity(CLIENT_ID, None), QuotaEntity(USER, "alice"))
    rates = (QuotaChange("producer_byte_rate", 4.0), QuotaChange("consumer_byte_rate", 9.0))
    of_ip = EntityChange((QuotaEntity(IP, "10.0.0.7"),), (QuotaChange("connection_creation_rate", 1.0),))
    entries = (EntityChange(parts, rates), of_ip)
    for command in (
        CreateAcls(acls=acls, all_or_nothing=True),
        AlterClientQuotas(entries=entries, validate_only=False, all_or_nothing=True),
    ):
        world.decide(command).result()
    return world.image


@pytest.mark.parametrize("deletes", [False, True])
def test_acls_and_quotas_drift_and_go_only_when_asked(
    deletes: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    image = with_access()
    monkeypatch.setattr(live_state, "live_image", lambda _: image)
    more = ["--delete"] if deletes else []
    assert cli.main(["plan", a_file(tmp_path, ACCESS), *more, "-o", "json", *AT]) == 10
    shown = capsys.readouterr()
    rows = [tuple(row.values()) for row in json.loads(shown.out)]
    quotas = "quotas of client-id=<default>, user=alice"
    lacking: list[tuple[str, str, str, str | None]] = [
        ("acls of topic orders", "User:alice DESCRIBE from *", "allow", None),
        ("acls of cluster kafka-cluster", "User:bob ALL from *", "deny", None),
        (quotas, "producer_byte_rate", "5", "4"),
        (quotas, "request_percentage", "2.5", None),
    ]
    extra: list[tuple[str, str, str, str | None]] = [
        ("acls of topic orders", "User:carol WRITE from *", "none", "allow"),
        (quotas, "consumer_byte_rate", "none", "9"),
        ("quotas of ip=10.0.0.7", "connection_creation_rate", "none", "1"),
    ]
    assert sorted(rows, key=str) == sorted(lacking + (extra if deletes else []), key=str)
    assert ("3 ACLs and quotas are not declared" in shown.err) is not deletes
    found = drift(read_declared(tomllib.loads(ACCESS)), image, deletes=deletes).access
    unset = [{"user": "alice", "client_id": None, "unset": ["consumer_byte_rate"]}] if deletes else []
    assert [one for one in found.quotas if one["unset"]][:1] == [
        {**one, "set": {"producer_byte_rate": 5.0, "request_percentage": 2.5}} for one in unset
    ]
    assert [one["principal"] for one in found.ends] == (["User:carol"] if deletes else [])
    nothing = drift(read_declared({}), image, deletes=deletes).access
    assert nothing.differences == nothing.undeclared == [], "a file without such parts says nothing of them"


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ({"acls": [{"principal": "alice", "operations": ["READ"], "resource": "topic:a"}]}, "has no type"),
        (
            {"acls": [{"principal": "User:a", "operations": ["READS"], "resource": "topic:a"}]},
            "'READS' is none of",
        ),
        ({"acls": [{"principal": "User:a", "operations": [], "resource": "topic:a"}]}, "no operation"),
        ({"acls": [{"principal": "User:a", "operations": ["READ"], "resource": "table:a"}]}, "not TYPE:NAME"),
        ({"quotas": [{"values": {}}]}, "wanted user, client_id, both, or ip"),
        ({"quotas": [{"user": "a", "defaults": ["user"], "values": {}}]}, "each by its name or in defaults"),
        ({"quotas": [{"user": "a", "values": {}}, {"user": "a", "values": {}}]}, "user=a is declared twice"),
    ],
)
def test_a_declaration_of_access_that_is_none_is_refused(value: Any, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        read_declared(value)
