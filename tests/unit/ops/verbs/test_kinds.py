"""Every verb that takes a log says what it was given, and reads it or names the verb that does."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from metadata_log.codec import read_header
from metadata_log.log.segmented_log import SegmentedLog
from metadata_log.replay.export import export_log
from metadata_log.replay.kinds import PARTITION, Kind, kind_of
from ops import cli
from snapshots.snapshot_file import write_snapshot
from tests.support import kafka_log as by_hand
from tests.support.exports import frames_of
from tests.support.histories import CLUSTER_ID, history_of

pytestmark = pytest.mark.slow

HISTORY = [*history_of(31, 40)]
TOPIC = bytes(15) + b"\x77"
STATE = [by_hand.topic("t", TOPIC), by_hand.partition(TOPIC, 0, [11, 12])]
FOUNDED = by_hand.batch(0, [by_hand.leader_change(1, [1, 2, 3])], control=2)
CREATED = by_hand.batch(1, STATE)


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> dict[Kind, Path]:
    """Return one healthy path of each kind."""
    at = tmp_path_factory.mktemp("kinds")
    kafka = by_hand.written(at / "kafka", [FOUNDED, CREATED])
    checkpoint = at / "copied" / f"{3:020d}-{1:010d}.checkpoint"
    checkpoint.parent.mkdir()
    checkpoint.write_bytes(by_hand.checkpoint(3, STATE))
    log = SegmentedLog.open(at / "node" / "log")
    for step in HISTORY:
        log.append(step.frame, read_header(step.frame))
    log.sync()
    log.close()
    (at / "ours").mkdir()
    snapshot = write_snapshot(HISTORY[20].image, at / "ours")
    export_log(frames_of(HISTORY), at / "export", cluster_id=CLUSTER_ID)
    export_log(frames_of(HISTORY), at / "lake" / f"cluster={CLUSTER_ID}", cluster_id=CLUSTER_ID)
    return {
        Kind.EXPORT: at / "export",
        Kind.LAKE: at / "lake",
        Kind.KAFKA_LOG: kafka,
        Kind.KAFKA_SEGMENT: kafka / PARTITION / f"{0:020d}.log",
        Kind.CHECKPOINT: checkpoint,
        Kind.LOG: at / "node",
        Kind.SEGMENT: at / "node" / "log" / f"{0:020d}.log",
        Kind.SNAPSHOT: snapshot,
        Kind.PARQUET: next((at / "export" / "records").iterdir()),
    }


def test_each_kind_is_told_by_its_content(given: dict[Kind, Path]) -> None:
    assert set(given) == set(Kind)
    for kind, path in given.items():
        assert kind_of(path) is kind


def test_a_verb_reads_what_it_is_given_or_names_the_verb_that_does(
    given: dict[Kind, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Goal: nothing healthy is called damaged, and no message leads nowhere. Method: every verb with a path of every kind;
    the first command that a refusal names is run, and reads the path.
    """
    ran = set[str]()
    for kind, path in given.items():
        for place, verb in enumerate(
            (
                ["log", "dump", str(path)],
                ["log", "verify", str(path)],
                ["snapshot", "verify", str(path)],
                ["whatif", "--roll", "--from", str(path)],
                ["whatif", "--roll-controllers", "--from", str(path)],
                ["replay", "state", "topics", "--export", str(path)],
                ["log", "export", str(path), "--to", str(tmp_path / f"{kind.name}-{len(str(path))}")],
                # It opens what `state` does, and lakes.
                *([["replay", "sql", "SELECT 1", "--export", str(path)]] if kind is Kind.LAKE else []),
            )
        ):
            code = cli.main(verb)
            said = capsys.readouterr()
            # 10 is an answer of `whatif`: partitions would suffer, or the quorum would not write.
            assert code in ({0, 2, 3, 10} if verb[0] == "whatif" else {0, 2, 3}), (kind, verb, said.err)
            assert "amaged" not in said.err and "bug" not in said.err
            if code == 3 and place < 5:
                assert kind.value in said.err or "no segment" in said.err, (verb, said.err)
                named = said.err.split("`")
                if kind is not Kind.PARQUET and len(named) > 1 and named[1] not in ran:
                    ran.add(named[1])
                    command = shlex.split(named[1].replace("\\", ""))
                    assert command[0] == "metaquorum"
                    assert cli.main(command[1:]) == 0, command
                    capsys.readouterr()


def test_a_checkpoint_alone_is_a_state_without_a_history(
    given: dict[Kind, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """Goal: a state that somebody copied can be asked. Method: a checkpoint of Kafka's, its folder, a snapshot of ours."""
    checkpoint, snapshot = given[Kind.CHECKPOINT], given[Kind.SNAPSHOT]

    def asked(*argv: str) -> Any:
        assert cli.main(["replay", *argv, "-o", "json"]) == 0
        return json.loads(capsys.readouterr().out)

    for path in (checkpoint, checkpoint.parent):
        assert [row["topic_name"] for row in asked("state", "topics", "--export", str(path))] == ["t"]
        assert asked("sql", "SELECT count(*) AS n FROM records", "--export", str(path)) == [{"n": 0}]
        assert cli.main(["replay", "report", "--export", str(path)]) == 0
        assert "Offsets 3 to 3" in capsys.readouterr().out
    topics = asked("state", "topics", "--export", str(snapshot))
    then = HISTORY[20].image.topics
    deleted = [each.topic for each in then.deleted.values()]
    assert {row["topic_name"] for row in topics} == {each.name for each in (*then.by_id.values(), *deleted)}
    digest = asked("digest", "--engine", "duckdb", "--export", str(snapshot))
    assert digest["end_offset"] == HISTORY[20].image.end_offset


def test_damage_is_told_with_file_and_byte(
    given: dict[Kind, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for kind in (Kind.KAFKA_SEGMENT, Kind.CHECKPOINT):
        content = bytearray(given[kind].read_bytes())
        content[-1] ^= 1
        path = tmp_path / given[kind].name
        path.write_bytes(content)
        assert cli.main(["log", "verify", str(path)]) == 6
        assert f"{path}: byte" in capsys.readouterr().err


@pytest.mark.parametrize("content", [b"", bytes(range(256))])
def test_a_file_of_no_kind_is_refused_and_is_no_damaged_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes
) -> None:
    """A file that was given by mistake: the message names it and what is wanted, and no class of an error."""
    given, at = tmp_path / "given.bin", str(tmp_path / "given.bin")
    given.write_bytes(content)
    for verb in (
        ["log", "dump", at],
        ["log", "verify", at],
        ["snapshot", "verify", at],
        ["whatif", "--roll", "--from", at],
        ["storage", "info", "--config", at],
        ["controller", "run", "--config", at],
        ["broker", "run", "--config", at],
        ["backup", "restore", at, "--config", at],
        ["certificates", "list", at],
        ["certificates", "list", str(tmp_path)],
        ["plan", at, "--bootstrap", "http://127.0.0.1:1"],
        ["partitions", "reassign", "--plan", at, "--bootstrap", "http://127.0.0.1:1"],
        ["quorum", "status", "--ca", at, "--bootstrap", "https://127.0.0.1:1"],
    ):
        assert cli.main(verb) in (2, 3), verb
        said = capsys.readouterr().err
        assert at in said or str(tmp_path) in said, (verb, said)
        assert not re.search(r"[a-z](Error|Settings|File|Directory)\b|Errno|a bug", said), (verb, said)


def test_a_damaged_file_is_told_by_its_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    snapshot, segment = tmp_path / "backup.snapshot", tmp_path / f"{0:020d}.log"
    for file, kind in ((snapshot, Kind.SNAPSHOT), (segment, Kind.SEGMENT)):
        file.write_bytes(b"rotten")
        assert kind_of(file) is kind
    assert cli.main(["snapshot", "verify", str(snapshot)]) == 6
    assert "DamagedFile" in capsys.readouterr().err
