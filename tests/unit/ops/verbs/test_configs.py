"""Edge: values of settings that come from a file or the standard input."""

import argparse
import io
from pathlib import Path
from types import SimpleNamespace

import pytest

from metadata_log.records.configs import is_sensitive
from ops.verbs.topics import key_values
from quorum.decide.config_defaults import BROKER_SETTINGS


def fail(message: str) -> None:
    raise SystemExit(message)


ARGS = argparse.Namespace(fail=fail)


def test_values_come_from_a_file_the_standard_input_or_the_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"hunter=2\r\n")
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(b"from outside\n\n")))
    found = key_values(ARGS, [f"a=@{secret}", "b=-", "c=@@home", "d=x=@y", "e="])
    assert found == {"a": "hunter=2", "b": "from outside\n", "c": "@home", "d": "x=@y", "e": ""}


@pytest.mark.parametrize(
    "pairs", [["a=-", "b=-"], ["a=@/no/such/file"], ["a=@{bytes}"], ["a"], ["a=1", "a=2"]]
)
def test_what_is_no_value_is_a_usage_error_that_shows_no_content(tmp_path: Path, pairs: list[str]) -> None:
    content = tmp_path / "bytes"
    content.write_bytes(b"hunter2\xff")
    with pytest.raises(SystemExit) as refusal:
        key_values(ARGS, [pair.format(bytes=content) for pair in pairs])
    assert "hunter2" not in str(refusal.value)


def test_each_password_of_kafka_is_a_secret() -> None:
    passwords = [name for name, known in BROKER_SETTINGS.items() if known.type == "PASSWORD"]
    assert "ssl.keystore.certificate.chain" in passwords
    assert all(map(is_sensitive, passwords))
