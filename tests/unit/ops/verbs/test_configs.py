"""Edge: settings on the command line: their values, and what is said of names that are not there."""

import io
import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from metadata_log.kafka_settings import BROKER_SETTINGS
from metadata_log.records.configs import BROKER, is_sensitive
from ops import cli
from ops.given import Misuse
from ops.verbs.topics import key_values
from tests.support.told_node import Reply, Seen, node


def test_values_come_from_a_file_the_standard_input_or_the_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"hunter=2\r\n")
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(b"from outside\n\n")))
    found = key_values([f"a=@{secret}", "b=-", "c=@@home", "d=x=@y", "e="])
    assert found == {"a": "hunter=2", "b": "from outside\n", "c": "@home", "d": "x=@y", "e": ""}


@pytest.mark.parametrize(
    "pairs", [["a=-", "b=-"], ["a=@/no/such/file"], ["a=@{bytes}"], ["a"], ["a=1", "a=2"]]
)
def test_what_is_no_value_is_a_usage_error_that_shows_no_content(tmp_path: Path, pairs: list[str]) -> None:
    content = tmp_path / "bytes"
    content.write_bytes(b"hunter2\xff")
    with pytest.raises(Misuse) as refusal:
        key_values([pair.format(bytes=content) for pair in pairs])
    assert "hunter2" not in str(refusal.value)


def test_each_password_of_kafka_is_a_secret() -> None:
    passwords = [name for name, known in BROKER_SETTINGS.items() if known.type == "PASSWORD"]
    assert "ssl.keystore.certificate.chain" in passwords
    assert all(is_sensitive(BROKER, name) for name in passwords)


@pytest.mark.parametrize(("base", "end"), [(5, 5), (5, 6)])
def test_a_change_that_writes_nothing_says_so(
    capsys: pytest.CaptureFixture[str], base: int, end: int
) -> None:
    row = {"resource_type": "topic", "resource_name": "t", "error": None, "message": None}
    body = json.dumps({"resources": [row], "offsets": {"base": base, "end": end}}).encode()
    with node() as told:
        told.answer = lambda _: Reply(body=body)
        words = ["configs", "unset", "--bootstrap", told.url, "--topic", "t", "retention.ms"]
        assert cli.main(words) == 0
    assert ("nothing was written" in capsys.readouterr().err) is (base == end)


def test_settings_that_are_not_there_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    item = {"resource_type": "topic", "resource_name": "t", "name": "retention.ms", "value": "1"}
    items = [{**item, "source": "DEFAULT_CONFIG", "type": "LONG"}]
    body = json.dumps({"end_offset": 5, "controller_epoch": 1, "items": items}).encode()
    with node() as told:
        told.answer = lambda _: Reply(body=body)
        asked = ["--bootstrap", told.url, "--topic", "t", "-o", "json", "retention.ms", "retention.mss"]
        assert cli.main(["configs", "list", *asked]) == 0
        shown = capsys.readouterr()
        assert [one["name"] for one in json.loads(shown.out)] == ["retention.ms"]
        assert "not set here: retention.mss" in shown.err
        assert cli.main(["configs", "describe", *asked]) == 3
        assert "no such setting: retention.mss" in capsys.readouterr().err


def test_settings_of_groups_and_of_clients_metrics_are_set_and_shown() -> None:
    changed = {"resource_type": "group", "resource_name": "g", "error": None, "message": None}
    answers = [
        {"resources": [changed, changed], "offsets": {"base": 1, "end": 2}},
        {"items": []},
        {"items": []},
    ]
    with node() as told:
        told.answer = lambda _: Reply(body=json.dumps(answers.pop(0)).encode())
        words = ("--group", "g", "--client-metrics", "m", "interval.ms=1000", "--bootstrap", told.url)
        assert cli.main(["configs", "set", *words]) == 0
        for named in (("--group", "g"), ("--client-metrics", "m")):
            assert cli.main(["configs", "list", *named, "--bootstrap", told.url]) == 0
        seen = [(each.method, each.path) for each in told.seen]
        sent = json.loads(told.seen[0].body)["resources"]
    assert sent == [
        {"group": "g", "set": {"interval.ms": "1000"}},
        {"client_metrics": "m", "set": {"interval.ms": "1000"}},
    ]
    assert seen[1:] == [("GET", "/v1/configs?group=g"), ("GET", "/v1/configs?client_metrics=m")]


def test_settings_of_everything_are_those_of_the_state(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        {"resource_type": kind, "resource_name": "x", "name": name, "value": "1"}
        for kind, name in (("topic", "retention.ms"), ("group", "consumer.session.timeout.ms"))
    ]
    asked: set[str] = set()

    def answer(seen: Seen) -> Reply:
        asked.add(seen.path)
        return Reply(body=json.dumps({"configs": rows}).encode(), headers={"X-High-Watermark": "9"})

    with node() as told:
        told.answer = answer
        words = ["configs", "list", "--all", "-o", "json", "--bootstrap", told.url]
        assert cli.main(words) == 0
        assert json.loads(capsys.readouterr().out) == rows
        assert cli.main([*words, "retention.ms"]) == 0
        assert json.loads(capsys.readouterr().out) == rows[:1]
    assert asked == {"/v1/state?only=configs"}, "no partition is read for it"
