"""Edge: whose a directory of Kafka's is, and its founding: read, or refused with the file."""

import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from metadata_log.errors import DamagedFile, InvalidRequest
from ops.takeover.kafka_directory import FOUNDING, LOCK, META, Founded, founding_in, is_locked, owner_of
from tests.support.kafka_log import RECORDING

RECORDED = RECORDING.with_name("bootstrap.checkpoint")
"""What `kafka-storage format --release-version 4.1 --add-scram SCRAM-SHA-256=[name=alice,...]` of 4.3.1 left."""


def test_an_empty_directory_is_nobodys(tmp_path: Path) -> None:
    assert owner_of(tmp_path) is None
    assert founding_in(tmp_path) is None
    assert not is_locked(tmp_path)


@pytest.mark.parametrize(
    ("text", "told"),
    [("cluster.id=x\n", "names no node.id"), ("node.id=1\ndirectory.id=?\n", "directory.id: ")],
)
def test_an_owner_that_cannot_be_read_is_refused(tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / META).write_text(text)
    with pytest.raises(InvalidRequest, match=told):
        owner_of(tmp_path)


def test_a_directory_of_an_old_release_has_no_id(tmp_path: Path) -> None:
    (tmp_path / META).write_text("node.id=3\n")
    assert owner_of(tmp_path) == (3, None)


def test_a_founding_is_read(tmp_path: Path) -> None:
    shutil.copy(RECORDED, tmp_path)
    levels = {
        "metadata.version": 27,
        "eligible.leader.replicas.version": 1,
        "group.version": 1,
        "transaction.version": 2,
    }
    assert founding_in(tmp_path) == Founded(levels, (("alice", "SCRAM-SHA-256"),))


def test_a_founding_that_is_damaged_is_refused(tmp_path: Path) -> None:
    content = bytearray(RECORDED.read_bytes())
    content[random.Random(1).randrange(200, 400)] ^= 1
    (tmp_path / FOUNDING).write_bytes(content)
    with pytest.raises(DamagedFile, match=r"bootstrap.checkpoint: byte \d+"):
        founding_in(tmp_path)


def test_a_process_in_a_directory_is_seen_until_it_ends(tmp_path: Path) -> None:
    (tmp_path / LOCK).touch()
    text = "import fcntl, sys; f = open(sys.argv[1], 'r+'); fcntl.lockf(f, fcntl.LOCK_EX); print(flush=True); input()"
    command = [sys.executable, "-c", text, str(tmp_path / LOCK)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert is_locked(tmp_path)
        process.communicate(b"\n")
    assert not is_locked(tmp_path)
