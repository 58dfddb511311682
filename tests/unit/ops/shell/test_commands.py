"""Edge: what the commands of the shell print, over states of a cluster and over those of files."""

import io
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from metadata_log.batch import Cause, Envelope
from metadata_log.codec import decode
from metadata_log.errors import InvalidRequest, OffsetCompacted, OffsetInFuture
from metadata_log.ids import BrokerId, Uuid
from metadata_log.image.metadata_image import EMPTY, MetadataImage
from metadata_log.records.brokers import BrokerRegistrationChangeRecord, RegisterBrokerRecord
from metadata_log.replay.export import export_log
from ops import cli
from ops.admin.client import ClusterClient
from ops.admin.explain import History, Step
from ops.shell import sources
from ops.shell.commands import COMMANDS, Moment, Shell, words_of
from ops.shell.sources import ClusterSource
from ops.shell.tree import escaped
from ops.when import AtOffset, When
from snapshots.snapshot_file import write_snapshot
from tests.support.fake_controller import CLUSTER_ID, FakeLog
from tests.support.histories import history_of


@pytest.fixture(name="log")
def a_log() -> FakeLog:
    """Return a log of offsets 0 to 6: a claim, broker 11, topics a.b and orders (2), broker 11 unfenced."""
    log = FakeLog()
    asked = Envelope(operation="RegisterBroker", actor="Broker:11")
    log.append(
        RegisterBrokerRecord(BrokerId(11), Uuid(bytes(16)), 1, (), (), None, True, False, (), None),
        envelope=asked,
    )
    log.topic("a.b")
    log.topic("orders", partitions=2)
    cause = Cause("BROKER_UNFENCED", 1, {"broker_id": 11})
    unfenced = Envelope(operation=None, actor="Broker:11", cause=cause)
    log.append(BrokerRegistrationChangeRecord(BrokerId(11), 1, fenced=False), envelope=unfenced)
    return log


def steps(log: FakeLog, first: MetadataImage) -> Iterator[Step]:
    for before, (_, frame) in zip(log.images, log.frames, strict=False):
        if before.end_offset >= first.end_offset:
            yield Step(before, decode(frame)[0])


@pytest.fixture(name="shell")
def a_shell(log: FakeLog, monkeypatch: pytest.MonkeyPatch) -> Shell:
    def history(_: ClusterClient, *, since: When | None = None) -> History:
        at = since.offset if isinstance(since, AtOffset) else 0
        image = max(
            (each for each in log.images[1:3] if each.end_offset <= at),
            key=lambda each: each.end_offset,
            default=EMPTY,
        )
        return History(image, steps(log, image))

    monkeypatch.setattr(sources, "newer_image", lambda *_: log.image)
    monkeypatch.setattr(sources, "history", history)
    return Shell(ClusterSource(None))  # type: ignore[arg-type]


def printed(shell: Shell, line: str) -> list[str]:
    return [*shell.run(words_of(line))]


@pytest.mark.parametrize(
    ("line", "lines"),
    [
        ("", []),
        ("# a remark", []),
        ("pwd", ["/"]),
        ("ls /topics", ["a.b/", "orders/"]),
        ("ls -l /topics/orders", None),
        (
            "ls /topics/*/partitions",
            ["/topics/a.b/partitions:", "0", "", "/topics/orders/partitions:", "0", "1"],
        ),
        ("ls /provenance", ["/provenance"]),
        ("find /topics -name 0", ["/topics/a.b/partitions/0", "/topics/orders/partitions/0"]),
        (
            "find /topics/a.b -type d",
            ["/topics/a.b", "/topics/a.b/configs", "/topics/a.b/partitions"],
        ),
        (
            """grep -l '"leader":11,' /topics/o*""",
            ["/topics/orders/partitions/0", "/topics/orders/partitions/1"],
        ),
        ("grep -i -l PARTITION /topics/a.b", ["/topics/a.b/partitions/0"]),
        ("grep nowhere", []),
        ("tree -L 1 /topics", ["/topics", "  a.b/", "  orders/"]),
        ("tree -L 0 /topics", ["/topics"]),
    ],
)
def test_a_command_reads_the_tree(shell: Shell, line: str, lines: list[str] | None) -> None:
    if lines is None:
        assert printed(shell, line)[-1].startswith('topic_id  "')
    else:
        assert printed(shell, line) == lines


def test_a_file_is_printed_as_json(shell: Shell) -> None:
    assert json.loads("\n".join(printed(shell, "cat /brokers/11")))["fenced"] is False
    assert printed(shell, "cat /next_producer_id") == ["None"]


def test_one_goes_to_directories(shell: Shell) -> None:
    assert printed(shell, "cd topics/orders") == []
    assert shell.prompt == f"[{shell.moment.image.end_offset}] /topics/orders > "
    assert printed(shell, "ls partitions") == ["0", "1"]
    printed(shell, "cd ../..")
    assert printed(shell, "pwd") == ["/"]


def test_one_goes_to_other_moments(shell: Shell) -> None:
    printed(shell, "cd topics/orders/partitions")
    note, where = printed(shell, "at 5")
    assert note.startswith("5 lies inside a batch that begins at 4")
    assert where.startswith("the state at offset 4, epoch 1, ")
    assert printed(shell, "pwd") == ["/topics"]  # orders was not there yet
    assert printed(shell, "ls") == ["a.b/"]
    assert printed(shell, "at 0")[-1] == "the state at offset 0, epoch 0, the beginning"
    assert printed(shell, "at now")[0].startswith(f"the state at offset {shell.moment.image.end_offset}, ")
    time = shell.moment.image.last_time_ms
    assert printed(shell, f"at t{time - 2}")[0].startswith("the state at offset 4, ")


def test_moments_are_compared_below_the_current_directory(shell: Shell) -> None:
    assert printed(shell, "diff 2") == printed(shell, "diff 2 now")
    whole = printed(shell, "diff 2")
    assert "~ /brokers/11 fenced: true -> false" in whole
    assert any(line.startswith("+ /topics/orders/partitions/1 {") for line in whole)
    printed(shell, "cd brokers")
    assert printed(shell, "diff 2")[1:] == ["~ /brokers/11 fenced: true -> false"]
    assert printed(shell, "diff 8 2")[1:] == ["~ /brokers/11 fenced: false -> true"]


def test_the_history_of_a_path_has_causes_and_actors(shell: Shell) -> None:
    came, became = (line for line in printed(shell, "history /brokers/11") if not line.startswith("    "))
    assert came.endswith("offset 1: RegisterBroker was asked for, by Broker:11")
    assert became.endswith("offset 7: broker 11 had caught up and was unfenced, by Broker:11")
    assert printed(shell, "history /brokers/12") == []
    assert len(printed(shell, "history /topics")) == 2 + 2 + 3


def test_the_history_of_the_root_is_that_of_the_whole_state(shell: Shell) -> None:
    whole = printed(shell, "history /")
    below = [printed(shell, f"history /{name}") for name in ("brokers", "topics")]
    assert {line for lines in below for line in lines} <= {*whole}
    assert printed(shell, "history") == whole  # of the current directory
    assert not any("/provenance" in line for line in whole)


@pytest.mark.parametrize(
    "line",
    [
        *("nonsense", "cat", "cat /topics", "cat /nothing", "cd /provenance", "cd /nothing", "ls /no*"),
        *(
            "find -name",
            "find -type x",
            "grep",
            "grep '['",
            "tree -L deep",
            "at soon",
            "man nothing",
            "pwd too much",
        ),
        *("cat 'open", "ls --such", "history a b"),
    ],
)
def test_what_is_wrong_is_named(shell: Shell, line: str) -> None:
    with pytest.raises(InvalidRequest):
        printed(shell, line)


def test_a_moment_that_the_log_does_not_reach_is_named(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(OffsetInFuture):
        printed(shell, "at 999")
    monkeypatch.setattr(sources, "history", lambda *_, **__: History(shell.moment.image, iter(())))
    with pytest.raises(OffsetCompacted):
        printed(shell, "at 1")


def test_every_command_is_explained(shell: Shell) -> None:
    assert len(printed(shell, "man")) == len(COMMANDS) + 1
    assert printed(shell, "help") == printed(shell, "man")
    for name in COMMANDS:
        usage, _, about, *options = printed(shell, f"man {name}")
        assert usage.startswith(name) and about.endswith(".")
        assert all(len(option.split("  ")) == 3 for option in options)


def test_paths_are_completed(shell: Shell) -> None:
    assert shell.completions("/to") == ["/tokens/", "/topics/"]
    assert shell.completions("topics/") == ["topics/a.b/", "topics/orders/"]
    assert shell.completions("/topics/orders/partitions/1") == ["/topics/orders/partitions/1"]
    assert shell.completions("/nothing/") == []


# --- files, by the command line


@pytest.fixture(name="export")
def an_export(log: FakeLog, tmp_path: Path) -> Path:
    def frames(first: int, until: int | None = None) -> Iterator[tuple[object, bytes]]:
        return ((header, frame) for header, frame in log.frames if header.base_offset >= first)

    export_log(frames, tmp_path / "export", cluster_id=CLUSTER_ID)  # type: ignore[arg-type]
    return tmp_path / "export"


@pytest.mark.slow
def test_a_log_in_files_is_walked_in_the_same_way(
    export: Path, shell: Shell, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = ["find /topics", "at 4", "ls /topics", "cat /brokers/11", "exit", "nonsense"]
    monkeypatch.setattr("sys.stdin", io.StringIO("\n".join(lines)))
    assert cli.main(["shell", "--of", str(export)]) == cli.OK
    expected = [line for each in lines[:1] for line in printed(shell, each)]
    found = capsys.readouterr().out.splitlines()
    assert found[: len(expected)] == expected
    assert found[len(expected)].startswith("shown at 4")
    assert '"fenced": true,' in "".join(found)


@pytest.mark.slow
def test_one_command_is_taken_from_the_command_line(export: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["shell", "--of", str(export), "--at", "4", "-c", "find /topics -name 0"]) == cli.OK
    assert cli.main(["shell", "--of", str(export), "-c", """grep -l '"leader":11,' /topics/a.b"""]) == cli.OK
    assert capsys.readouterr().out.splitlines() == ["/topics/a.b/partitions/0"] * 2
    assert cli.main(["shell", "--of", str(export), "-c", "history /topics/orders/partitions/0"]) == cli.OK
    assert "created on 11, led by 11" in capsys.readouterr().out
    assert cli.main(["shell", "--of", str(export), "-c", "history /configs"]) == cli.REJECTED
    assert cli.main(["shell", "--of", str(export), "--at", "99", "-c", "pwd"]) == cli.REJECTED


@pytest.mark.slow
def test_b91_every_subject_of_one_snapshot_file_is_walked_by_the_commands_of_kafkas_shell(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """B91: provenance, features, cluster, topics, configs, quotas, producer ids, ACLs, SCRAM users and tokens, in a file."""
    image = next(step.image for step in reversed(history_of(7, 120)) if step.image.topics.by_id)
    file = write_snapshot(image, tmp_path)

    def told(line: str) -> list[str]:
        assert cli.main(["shell", "--of", str(file), "-c", line]) == cli.OK, line
        return capsys.readouterr().out.splitlines()

    subjects = {*("provenance", "features/", "topics/", "configs/", "quotas/", "next_producer_id"), "users/"}
    assert subjects | {"acls/", "tokens/", "brokers/", "controllers/", "voters/"} <= {*told("ls")}
    assert json.loads("".join(told("cat provenance")))["end_offset"] == image.end_offset
    names = sorted(topic.name for topic in image.topics.by_id.values())
    assert told("ls topics") == [f"{escaped(name)}/" for name in names]
    assert told("find topics -type d -name partitions") == [
        f"/topics/{escaped(name)}/partitions" for name in names
    ]
    assert told("tree -L 1 topics") == ["/topics", *(f"  {escaped(name)}/" for name in names)]
    assert told("cd topics") == []
    assert told("pwd") == ["/"]
    assert told("man ls")[0].startswith("ls ")


@pytest.mark.slow
def test_a_data_directory_that_was_just_taken_over_shows_its_snapshot(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A takeover and a restore write a snapshot, and the log is empty until the node runs."""
    first, last = [step.image for step in history_of(7, 120) if step.image.topics.by_id][::40][:2]
    for image in (last, first):
        (tmp_path / "snapshots").mkdir(exist_ok=True)
        write_snapshot(image, tmp_path / "snapshots")
    (tmp_path / "log").mkdir()
    (tmp_path / "meta.json").write_text("{}")
    assert cli.main(["shell", "--of", str(tmp_path), "-c", "cat /provenance"]) == cli.OK
    assert json.loads(capsys.readouterr().out)["end_offset"] == last.end_offset


@pytest.mark.slow
def test_a_source_may_have_something_to_say(capsys: pytest.CaptureFixture[str], export: Path) -> None:
    assert cli.main(["shell", "--of", str(export), "--at", "6", "-c", "pwd"]) == cli.OK
    assert "6 lies inside the batch" in capsys.readouterr().err
    assert Moment(EMPTY).note == ""
