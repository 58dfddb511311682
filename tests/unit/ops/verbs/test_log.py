"""Edge: the log offline and over HTTP: dumped, cut by offset and time, verified."""

import json
import random
import urllib.parse
from collections.abc import Callable
from pathlib import Path

import msgpack
import pytest

from metadata_log import limits
from metadata_log.codec import read_header
from metadata_log.errors import DamagedFile, Fault, InvalidRequest
from metadata_log.ids import NodeId
from metadata_log.log.lines import log_lines
from metadata_log.log.segmented_log import SegmentedLog
from metadata_log.node.disk.data_directory import format_directory
from ops import cli
from ops.admin.client import ClusterClient
from ops.admin.exchange import Unreachable
from ops.admin.log_frames import Frame, cluster_frames, file_frames, high_watermark, within
from ops.command_line import talk
from ops.when import AtOffset, AtTime, When
from quorum.raft.journal.journal import Journal
from quorum.raft.journal.os_disk import OsDisk
from quorum.raft.pointer import FILE_NAME as POINTER_FILE
from snapshots.history import batches
from snapshots.snapshot_file import write_snapshot
from tests.support.histories import (
    A_NEWER_VERSION,
    A_TOPIC_ID_OF_INT,
    A_TYPE_UNKNOWN_HERE,
    CLUSTER_ID,
    frame_behind,
    history_of,
)
from tests.support.journals import compact_to
from tests.support.told_node import Node, Reply, Seen, error, node

FILE_BYTES = 1_500
HISTORY = [*history_of(5, 40)]
END = HISTORY[-1].batch.end_offset


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A formatted data directory with the history in several segments, and a snapshot."""
    directory = tmp_path / "controller-1"
    format_directory(
        directory, role="controller", node_id=NodeId(1), cluster_id=CLUSTER_ID, rng=random.Random(1)
    )
    log = SegmentedLog.open(directory / "log", segment_bytes=2_000)
    for step in HISTORY:
        log.append(step.frame, read_header(step.frame))
    log.sync()
    log.close()
    write_snapshot(HISTORY[20].image, directory / "snapshots")
    return directory


def dumped(capsys: pytest.CaptureFixture[str], *words: object) -> list[dict[str, object]]:
    assert cli.main(["log", "dump", *map(str, words), "-o", "json"]) == 0
    lines: list[dict[str, object]] = json.loads(capsys.readouterr().out)
    return lines


def test_a_dump_of_files_is_every_record_in_order(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """B92"""
    expected = [line for step in HISTORY for line in log_lines(step.batch)]
    assert dumped(capsys, data) == dumped(capsys, data / "log") == json.loads(json.dumps(expected))
    assert [line["offset"] for line in dumped(capsys, data, "--from", 7)] == list(range(7, END))


@pytest.mark.parametrize("output", ["table", "jsonl", "yaml"])
def test_every_way_to_show_it_has_every_record(
    data: Path, capsys: pytest.CaptureFixture[str], output: str
) -> None:
    assert cli.main(["log", "dump", str(data), "-o", output]) == 0
    shown = capsys.readouterr().out.splitlines()
    begins = {"table": " ", "jsonl": "{", "yaml": "- "}[output]
    assert len([line for line in shown if line.startswith(begins)]) == END


def test_a_dump_is_filtered_by_what_wrote_it(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    every = dumped(capsys, data)
    some = dumped(capsys, data, "--type", "topic", "--type", "Partition", "--since", 0)
    assert 0 < len(some) < len(every)
    assert some == [line for line in every if line["type"] in {"Topic", "Partition"}]
    assert dumped(capsys, data, "--actor", "User:nobody") == []
    assert dumped(capsys, data, "--to", 2) == dumped(capsys, data, "--until", 2) == every[:2]
    assert cli.main(["log", "dump", str(data), "--type", "Tpoic"]) == 2
    assert "is no type of record; they are" in capsys.readouterr().err
    assert cli.main(["log", "dump", str(data), "--cause", "FENCE"]) == 2
    assert "'FENCE' is no cause; they are BROKER_REGISTERED" in capsys.readouterr().err
    assert dumped(capsys, data, "--cause", "fence_requested", "--cause", "ElectLeaders") == []


def test_an_empty_dump_is_an_empty_list_and_says_so(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["log", "dump", str(data), "--from", str(END), "-o", "json"]) == 0
    told = capsys.readouterr()
    assert json.loads(told.out) == []
    assert "no such record lies in this range of the log" in told.err
    with node() as asked:
        serve(asked, per_page=100)
        assert cli.main(["log", "dump", "--bootstrap", asked.url, "--from", str(END), "-o", "json"]) == 0
    assert "no such record lies in this range of the log" in capsys.readouterr().err


def test_a_range_inside_a_batch_has_the_records_of_the_range(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Goal: offsets name records. Method: ranges that begin and end inside batches, of files and of a cluster's pages."""
    large = max((step.batch for step in HISTORY), key=lambda batch: len(batch.records))
    base, end = large.base_offset, large.end_offset
    assert end - base > 3
    ranges = [
        (base + 1, base + 2),
        (base, base + 1),
        (base + 1, end - 1),
        (base - 1, base + 1),
        (end - 1, end + 1),
    ]
    with node() as told:
        pages = [(per_page, ["--bootstrap", told.url]) for per_page in (1, 7, 100)]
        for per_page, source in [(1, [str(data)]), *pages]:
            serve(told, per_page=per_page)
            for first, until in ranges:
                lines = dumped(capsys, *source, "--from", first, "--until", until)
                offsets = [line["offset"] for line in lines]
                assert offsets == list(range(first, until)), (source, per_page, first, until)
            lines = dumped(capsys, *source, "--until", 2)
            assert [line["offset"] for line in lines] == [0, 1], (source, per_page)


@pytest.mark.parametrize("flag", ["--from", "--until"])
def test_an_offset_beyond_the_files_is_refused_by_name(
    data: Path, capsys: pytest.CaptureFixture[str], flag: str
) -> None:
    assert cli.main(["log", "dump", str(data), flag, str(END + 1), "-o", "json"]) == 3
    assert f"{flag} {END + 1} lies beyond the end of what is here, {END}" in capsys.readouterr().err


def test_a_beginning_behind_what_is_asked_for_is_said(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second, *_ = sorted((data / "log").glob("*.log"))
    begins_at = int(second.stem)
    for words in (["--from", "0"], ["--from", "2020-01-01T00:00Z"]):
        assert cli.main(["log", "dump", str(data), *words]) == 0
        assert "the log here begins" not in capsys.readouterr().err
    first.unlink()
    for words in (["--from", "0"], ["--from", "2020-01-01T00:00Z"], ["--from", str(begins_at - 1)]):
        assert cli.main(["log", "dump", str(data), *words]) == 0
        assert f"the log here begins at offset {begins_at}, " in capsys.readouterr().err
    for words in ([], ["--from", str(begins_at)]):
        assert cli.main(["log", "dump", str(data), *words]) == 0
        assert "the log here begins" not in capsys.readouterr().err


@pytest.mark.parametrize("place", [0, 1, 17, 39])
def test_positions_cut_at_whole_batches(place: int) -> None:
    """Goal: `from` begins with the batch that contains it, `until` ends with the one that does."""
    frames = [Frame(read_header(step.frame), step.frame, "here") for step in HISTORY]
    batch = HISTORY[place].batch

    def bases(first: When | None, until: When | None) -> list[int]:
        return [frame.header.base_offset for frame in within(frames, first=first, until=until)]

    every = [step.batch.base_offset for step in HISTORY]
    assert bases(None, None) == every
    assert bases(AtOffset(batch.last_offset), None) == every[place:]
    assert bases(None, AtOffset(batch.last_offset)) == [base for base in every if base < batch.last_offset]
    latest = [max(step.batch.appended_at_ms for step in HISTORY[: at + 1]) for at in range(len(HISTORY))]
    moment = latest[place]
    assert bases(AtTime(moment), None) == [b for b, t in zip(every, latest, strict=True) if t >= moment]
    assert bases(None, AtTime(moment)) == [b for b, t in zip(every, latest, strict=True) if t <= moment]


def test_a_torn_end_is_said_and_a_damaged_middle_refused(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = sorted((data / "log").glob("*.log"))
    assert len(files) > 2
    whole = files[-1].read_bytes()
    files[-1].write_bytes(whole[:-3])
    said: list[str] = []
    assert len(list(file_frames(data, say=said.append))) == len(HISTORY) - 1
    assert "torn by a crash" in said[0]
    files[-1].write_bytes(whole)
    middle = bytearray(files[0].read_bytes())
    middle[60] ^= 1
    files[0].write_bytes(middle)
    with pytest.raises(DamagedFile, match=f"{files[0].name}: byte 0: "):
        list(file_frames(data))
    assert cli.main(["log", "verify", str(data)]) == 6
    assert f"DamagedFile: {files[0]}: byte 0: " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (
            A_TOPIC_ID_OF_INT,
            "DamagedFile: {}: a frame's body is not ours: topic_id of a TopicRecord: expected bytes",
        ),
        (msgpack.packb([1, 2]), "DamagedFile: {}: a frame's body is not ours: "),
        (A_TYPE_UNKNOWN_HERE, "WrittenByAnotherVersion: {}: record type 7777 version 0 is unknown"),
        (A_NEWER_VERSION, "WrittenByAnotherVersion: {}: record type 12 version 9 is unknown"),
    ],
)
def test_a_sound_frame_that_says_nothing_known_is_refused_by_file_and_byte(
    data: Path, capsys: pytest.CaptureFixture[str], body: bytes, said: str
) -> None:
    """Goal: one place is told, whoever reads. Method: such a frame at the end of the last of several segments."""
    file = max((data / "log").glob("*.log"))
    begins = file.stat().st_size
    assert begins > 0
    file.write_bytes(file.read_bytes() + frame_behind(HISTORY[-1].frame, body))
    for verb in ("verify", "dump"):
        for path in (data, data / "log", *([file] if verb == "dump" else [])):
            assert cli.main(["log", verb, str(path)]) == 6
            line = capsys.readouterr().err.splitlines()[-1]
            assert line.startswith("metaquorum: " + said.format(f"{file}: byte {begins}")), line
    log = SegmentedLog.open(data / "log", segment_bytes=2_000)
    with pytest.raises(Fault, match=f"^{file}: byte {begins}: "):
        list(batches(log, 0))
    log.close()


def test_a_frame_of_the_cluster_that_says_nothing_known_is_refused_by_node_and_offset(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    frames = HISTORY[0].frame + frame_behind(HISTORY[0].frame, A_TOPIC_ID_OF_INT)
    end = HISTORY[0].batch.end_offset
    with node() as told:
        status = json.dumps({"cluster_id": CLUSTER_ID, "log_start_offset": 0, "high_watermark": end + 1})
        told.answer = lambda seen: Reply(
            body=status.encode() if seen.path.startswith("/v1/quorum") else frames,
            headers={"X-High-Watermark": str(end + 1)},
        )
        assert cli.main(["log", "dump", "--bootstrap", told.url]) == 6
        said = capsys.readouterr().err
        assert f"DamagedFile: {told.url}: offset {end}: a frame's body is not ours: topic_id" in said
        assert cli.main(["log", "export", "--bootstrap", told.url, "--to", str(tmp_path / "export")]) == 6
        assert f"the log to be exported: offset {end}: a frame's body" in capsys.readouterr().err


def test_verify_finds_all_there_is(data: Path, journal: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["log", "verify", str(data.parent), "-o", "json"]) == 0
    log, snapshot, row = json.loads(capsys.readouterr().out)
    assert (row["kind"], row["path"]) == ("journal", str(journal))
    assert (log["kind"], log["end_offset"], log["frames"]) == ("log", END, len(HISTORY))
    assert (snapshot["kind"], snapshot["end_offset"]) == ("snapshot", HISTORY[20].image.end_offset)
    (data / "controller.log").write_text("what the process said is no log of records")
    assert cli.main(["log", "verify", str(data), "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == [log, snapshot, row]
    segment = min((data / "log").glob("*.log"))
    assert cli.main(["log", "verify", str(segment)]) == 0


def test_a_snapshot_is_verified_by_name(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = next((data / "snapshots").iterdir())
    assert cli.main(["snapshot", "verify", str(file), "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["end_offset"] == HISTORY[20].image.end_offset
    damaged = bytearray(file.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    file.write_bytes(damaged)
    assert cli.main(["snapshot", "verify", str(file)]) == 6
    assert str(file) in capsys.readouterr().err
    assert cli.main(["snapshot", "verify", str(data)]) == 2
    assert "metaquorum log verify DIR" in capsys.readouterr().err


@pytest.mark.parametrize("verb", ["dump", "verify"])
def test_where_nothing_is(tmp_path: Path, capsys: pytest.CaptureFixture[str], verb: str) -> None:
    assert cli.main(["log", verb, str(tmp_path)]) == 3
    assert "holds no segment" in capsys.readouterr().err
    assert cli.main(["log", verb, str(tmp_path / "none")]) == 2
    assert f"there is no {tmp_path / 'none'}" in capsys.readouterr().err


@pytest.fixture
def journal(data: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A journal of several small files beside the log, as a clean stop leaves it."""
    monkeypatch.setattr(limits, "JOURNAL_FILE_BYTES", FILE_BYTES)
    directory = data / "journal"
    written = open_journal(directory)
    for index, step in enumerate(HISTORY[-12:], 1):
        written.add(b"\x10" + step.frame, index, 1)
        flush(written)
    written.mark_idle()
    written.close()
    assert last_written(directory).read_bytes().count(b"MQJB") > 2, (
        "FILE_BYTES must leave two batches before the mark"
    )
    return directory


def open_journal(directory: Path) -> Journal:
    return Journal.open(OsDisk(directory), random_bytes=random.Random(1).randbytes, file_bytes=FILE_BYTES)


def flush(journal: Journal) -> None:
    batch = journal.take_batch()
    assert batch is not None
    journal.write(batch)
    journal.completed(batch)


def contents(directory: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def used(file: Path) -> bytes:
    return file.read_bytes().rstrip(b"\0")


def end_of_batches(file: Path) -> int:
    """Return where the last batch ends, or the header of a file without one; a batch may end in zeros."""
    content = file.read_bytes()
    at = content.rfind(b"MQJB")
    return len(used(file)) if at < 0 else at + 20 + int.from_bytes(content[at + 4 : at + 8])


def journal_row(capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    rows: list[dict[str, object]] = json.loads(capsys.readouterr().out)
    return rows[-1]


def test_a_journal_is_verified_and_left_as_it_is(
    data: Path, journal: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = contents(data)
    assert cli.main(["log", "verify", str(data), "-o", "json"]) == 0
    row = journal_row(capsys)
    files = list(journal.glob("*.journal"))
    assert len(files) > 3
    assert row == {
        "path": str(journal),
        "kind": "journal",
        "files": len(files),
        "frames": 13,  # twelve entries and the idle mark
        "bytes": sum(map(end_of_batches, files)),
        "start_offset": None,
        "end_offset": None,
        "torn_bytes": 0,
    }
    assert cli.main(["log", "verify", str(journal), "-o", "json"]) == 0
    assert journal_row(capsys) == row
    assert contents(data) == before


@pytest.mark.parametrize("what", ["its files", "its folder", "the log's files too"])
def test_a_journal_that_is_gone_is_refused_as_the_start_does(
    data: Path, capsys: pytest.CaptureFixture[str], what: str
) -> None:
    beside = data / "log"
    if what == "its folder":
        (data / "journal").rmdir()
    if what == "the log's files too":
        for path in beside.iterdir():
            path.unlink()
        beside = data / "snapshots"
    assert cli.main(["log", "verify", str(data)]) == 6
    said = capsys.readouterr().err
    assert f"DamagedFile: {data / 'journal'}: is empty, yet {beside} holds" in said
    assert "metaquorum quorum replace-voter" in said


def test_a_journal_that_ends_below_its_log_is_refused_as_the_start_does(
    data: Path, journal: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Goal: sectors of zeros look like a torn end, but what was applied had been synced."""
    file = last_written(journal)
    whole, last = file.read_bytes(), used(file).rindex(b"MQJB", 0, used(file).rindex(b"MQJB"))
    file.write_bytes(whole[: last + 5] + bytes(len(whole) - last - 5))
    before = contents(data)
    assert cli.main(["log", "verify", str(data)]) == 6
    said = capsys.readouterr().err
    assert f"DamagedFile: {journal}: ends below offset {END}, yet {data / 'log'} holds" in said
    assert "metaquorum quorum replace-voter" in said
    assert contents(data) == before


def test_a_journals_torn_end_is_said_and_not_cut(journal: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = sorted(journal.glob("*.journal"))[-2]  # the last one is the next file to be begun
    whole = file.read_bytes()
    mark = used(file).rindex(b"MQJB")
    last = used(file).rindex(b"MQJB", 0, mark)
    torn = whole[: mark - 7] + bytes(len(whole) - mark + 7)  # neither the end of the last batch, nor the mark
    file.write_bytes(torn)
    assert cli.main(["log", "verify", str(journal), "-o", "json"]) == 0
    heard = capsys.readouterr()
    (row,) = json.loads(heard.out)
    assert (row["frames"], row["torn_bytes"]) == (11, len(torn.rstrip(b"\0")) - last)
    assert f"{journal}: {row['torn_bytes']} bytes at the end are torn by a crash" in heard.err
    assert file.read_bytes() == torn
    open_journal(journal).close()
    assert cli.main(["log", "verify", str(journal), "-o", "json"]) == 0
    assert journal_row(capsys)["torn_bytes"] == 0, "the node cut it"


def flip(file: Path, at: int) -> None:
    data = bytearray(file.read_bytes())
    data[at] ^= 1
    file.write_bytes(data)


def first(journal: Path) -> Path:
    return min(journal.glob("*.journal"))


def last_written(journal: Path) -> Path:
    return sorted(journal.glob("*.journal"))[-2]


JOURNAL_DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "a header": (
        lambda journal: flip(first(journal), 20),
        "journal file 00000000000000000001.journal, byte 0: its header is damaged",
    ),
    "a batch in the middle": (
        lambda journal: flip(first(journal), 80),
        "journal file 00000000000000000001.journal, byte 36: the batch there is damaged",
    ),
    "the last batch before the idle mark": (
        lambda journal: flip(last_written(journal), used(last_written(journal)).rindex(b"MQJB") - 3),
        "the batch there is damaged, yet batch 13 was written behind it",
    ),
    "a closed file cut short": (
        lambda journal: first(journal).write_bytes(first(journal).read_bytes()[:790]),
        f"byte 790: it ends there, and was made {FILE_BYTES} bytes large",
    ),
    "a file that is missing": (
        lambda journal: sorted(journal.glob("*.journal"))[1].unlink(),
        "journal file 00000000000000000002.journal, byte 0: the file is missing",
    ),
    "the first file missing": (
        lambda journal: first(journal).unlink(),
        "are missing; they stood in an older file",
    ),
    "the pointer": (
        lambda journal: (journal / POINTER_FILE).write_bytes(b"\0" * 20),
        f"{POINTER_FILE}: byte 0: its checksum is wrong",
    ),
}


@pytest.mark.parametrize(("damage", "said"), JOURNAL_DAMAGES.values(), ids=JOURNAL_DAMAGES.keys())
def test_a_damaged_journal_is_named_with_its_cure_and_left_as_it_is(
    data: Path,
    journal: Path,
    capsys: pytest.CaptureFixture[str],
    damage: Callable[[Path], object],
    said: str,
) -> None:
    damage(journal)
    before = contents(data)
    assert cli.main(["log", "verify", str(data)]) == 6
    (line,) = capsys.readouterr().err.splitlines()
    assert str(journal) in line
    assert said in line
    assert "Replace the voter" in line
    assert contents(data) == before


def test_a_journal_that_stands_on_a_snapshot_needs_its_pointer(
    journal: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    compacted = open_journal(journal)
    compact_to(compacted, 6)
    flush(compacted)
    compacted.close()
    assert cli.main(["log", "verify", str(journal)]) == 6
    said = capsys.readouterr().err
    assert f"{POINTER_FILE}: byte 0: it is missing, and the journal begins at entry 5" in said


def test_a_running_nodes_journal_is_let_be(
    data: Path, journal: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A108: what a running node still writes is not read."""
    monkeypatch.setattr("ops.verbs.log.running_process", lambda _: {"pid": 1})
    flip(first(journal), 80)
    assert cli.main(["log", "verify", str(data), "-o", "json"]) == 0
    heard = capsys.readouterr()
    assert [row["kind"] for row in json.loads(heard.out)] == ["log", "snapshot"]
    assert f"{journal}: not verified, for its node runs: stop it first" in heard.err


def serve(told: Node, *, per_page: int) -> None:
    """Answer /v1/log as a controller does, `per_page` frames at a time."""

    def answer(seen: Seen) -> Reply:
        if seen.path.startswith("/v1/quorum"):
            status = {
                "cluster_id": "c",
                "node_id": 2,
                "leader_id": 1,
                "log_start_offset": 0,
                "high_watermark": END,
            }
            return Reply(body=json.dumps(status).encode())
        query = urllib.parse.parse_qs(urllib.parse.urlsplit(seen.path).query)
        first, until = int(query.get("from", ["0"])[0]), int(query.get("until", [str(END)])[0])
        frames = [s.frame for s in HISTORY if s.batch.end_offset > first and s.batch.end_offset <= until]
        return Reply(body=b"".join(frames[:per_page]), headers={"X-High-Watermark": str(END)})

    told.answer = answer


@pytest.mark.parametrize("per_page", [1, 7, 100])
def test_the_clusters_log_comes_in_pages(per_page: int) -> None:
    """A101: who only reads gets the same log, from any offset on."""
    with node() as told:
        serve(told, per_page=per_page)
        client = ClusterClient((told.url,), timeout_s=5, rng=random.Random(1))
        got = [frame.content for frame in cluster_frames(client.get, first=None, until=None)]
        assert got == [step.frame for step in HISTORY]
        middle = HISTORY[20].batch
        got = [
            frame.content for frame in cluster_frames(client.get, first="0", until=str(middle.last_offset))
        ]
        assert got == [step.frame for step in HISTORY if step.batch.base_offset < middle.last_offset]


def feed_of(told: Node) -> None:
    """Answer as a controller that gives a reader lines, and no frames."""
    lines = [json.dumps(line) for step in HISTORY for line in log_lines(step.batch)]

    def answer(seen: Seen) -> Reply:
        path = urllib.parse.urlsplit(seen.path)
        query = urllib.parse.parse_qs(path.query)
        if path.path != "/v1/log":
            status = {
                "cluster_id": "c",
                "node_id": 2,
                "leader_id": 1,
                "log_start_offset": 0,
                "items": [],
                "high_watermark": END,
            }
            return Reply(body=json.dumps(status).encode(), headers={"X-High-Watermark": str(END)})
        if "max_bytes" in query:
            return error("CLUSTER_AUTHORIZATION_FAILED", 403)
        first = int(query["from"][0])
        rows = [*lines[first:], json.dumps({"next_offset": END})]
        return Reply(body="".join(f"{row}\n" for row in rows).encode())

    told.answer = answer


def test_a_reader_who_may_not_see_frames_gets_the_lines(capsys: pytest.CaptureFixture[str]) -> None:
    with node() as told:
        feed_of(told)
        lines = dumped(capsys, "--bootstrap", told.url, "--from", 7)
    assert [line["offset"] for line in lines] == list(range(7, END))


def test_the_tail_of_the_log_is_its_last_records(capsys: pytest.CaptureFixture[str]) -> None:
    with node() as told:
        feed_of(told)
        assert cli.main(["log", "tail", "-n", "5", "-o", "jsonl", "--bootstrap", told.url]) == 0
        shown = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert [line["offset"] for line in shown] == list(range(END - 5, END))
        assert cli.main(["log", "tail", "-n", "3", "--bootstrap", told.url]) == 0
        numbered = [line for line in capsys.readouterr().out.splitlines() if line.startswith(" ")]
        assert [int(line.split()[0]) for line in numbered] == list(range(END - 3, END))
        since = ["log", "tail", "--since", "9", "-o", "jsonl", "--bootstrap", told.url]
        assert cli.main(since) == 0
        shown = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert [line["offset"] for line in shown] == list(range(9, END))
        assert cli.main([*since, "-n", "5"]) == 2


def test_a_dump_of_the_cluster(capsys: pytest.CaptureFixture[str]) -> None:
    with node() as told:
        serve(told, per_page=7)
        lines = dumped(capsys, "--bootstrap", told.url, "--from", 7)
    assert [line["offset"] for line in lines] == list(range(7, END))


@pytest.mark.slow
def test_an_export_that_reaches_further_already_is_left_as_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def answer(seen: Seen) -> Reply:
        if seen.path.startswith("/v1/quorum"):
            status = {"cluster_id": CLUSTER_ID, "log_start_offset": 0, "high_watermark": END}
            return Reply(body=json.dumps(status).encode())
        query = urllib.parse.parse_qs(urllib.parse.urlsplit(seen.path).query)
        first, until = int(query.get("from", ["0"])[0]), int(query.get("until", [str(END)])[0])
        assert first <= until, "a controller refuses that"
        frames = [s.frame for s in HISTORY if s.batch.end_offset > first and s.batch.end_offset <= until]
        return Reply(body=b"".join(frames), headers={"X-High-Watermark": str(END)})

    with node() as told:
        told.answer = answer
        words = ["log", "export", "--bootstrap", told.url, "--to", str(tmp_path / "export"), "-o", "json"]
        assert cli.main(words) == 0
        manifest = json.loads(capsys.readouterr().out)
        (state,) = (tmp_path / "export").glob("snapshots/*/state.parquet")
        state.write_bytes(b"")  # nobody reads it while there is nothing new
        for more in ([], ["--until", "5"]):
            assert cli.main([*words, *more]) == 0
            assert json.loads(capsys.readouterr().out) == manifest
        assert cli.main([*words, "--until", str(END + 1)]) == 3
        assert f"offset {END + 1} lies beyond the high watermark {END}" in capsys.readouterr().err


@pytest.mark.parametrize(("first", "until"), [("6", "5"), ("-1m", "-2m")])
def test_a_dump_that_ends_before_it_begins(
    data: Path, capsys: pytest.CaptureFixture[str], first: str, until: str
) -> None:
    assert cli.main(["log", "dump", str(data), f"--from={first}", f"--until={until}"]) == 2
    assert "--until lies before --from" in capsys.readouterr().err


def test_an_answer_that_is_no_log() -> None:
    with node() as told:
        client = ClusterClient((told.url,), timeout_s=5, rng=random.Random(1))
        told.answer = lambda _: Reply(body=b"<html>" * 20, headers={"X-High-Watermark": "5"})
        with pytest.raises(Unreachable, match="sent what is no frame: byte 0"):
            list(cluster_frames(client.get, first=None, until=None))
        told.answer = lambda _: Reply(body=b"<html>")
        with pytest.raises(Unreachable, match="is it a controller"):
            high_watermark(client.get("/v1/log"))


def test_a_path_that_holds_other_things(tmp_path: Path) -> None:
    (tmp_path / "notes.log").write_text("x")
    with pytest.raises(InvalidRequest):
        list(file_frames(tmp_path))


# --- exports


@pytest.mark.slow
def test_the_export_of_files_has_all_of_them(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    to = tmp_path / "lake"
    for until in (["--until", str(END // 2)], []):
        assert cli.main(["log", "export", str(data), "--to", str(to), "--lake", "-o", "json", *until]) == 0
    assert json.loads(capsys.readouterr().out.partition("\n}\n")[2])["end_offset"] == END
    assert (to / f"cluster={CLUSTER_ID}" / "manifest.json").exists()


@pytest.mark.slow
def test_an_export_that_follows_goes_on_until_it_is_stopped(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    segment = max((data / "log").glob("*.log"))
    last = segment.read_bytes()
    segment.write_bytes(b"")
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        segment.write_bytes(last)
        if len(pauses) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr("ops.verbs.log.time.sleep", pause)
    words = ["log", "export", str(data), "--to", str(tmp_path / "to"), "--follow", "--every", "2s"]
    assert cli.main(words) == 130
    told = [line for line in capsys.readouterr().err.splitlines() if "exported up to offset" in line]
    assert [int(line.rpartition(" ")[2]) for line in told] == [int(segment.stem), END]
    assert pauses == [2.0, 2.0, 2.0]


def test_an_export_of_files_refuses_what_only_a_cluster_knows(data: Path, tmp_path: Path) -> None:
    for words in (
        ["--from", "-1h"],
        ["--leader"],
        ["--follow", "--until", "5"],
        ["--skip-damaged", "--follow"],
    ):
        assert cli.main(["log", "export", str(data), "--to", str(tmp_path / "to"), *words]) == 2
    for words in (["--format", "kafka"], ["--skip-damaged"]):
        assert cli.main(["log", "export", *words, "--to", str(tmp_path / "to")]) == 2


@pytest.mark.slow
def test_what_takes_long_says_that_it_goes_on(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(talk, "PATIENCE_S", 0.0)
    export = str(tmp_path / "export")
    assert cli.main(["log", "export", str(data), "--to", export]) == 0
    assert "the log is being exported ..." in capsys.readouterr().err
    assert cli.main(["replay", "digest", "--export", export, "--engine", "duckdb"]) == 0
    assert "the digest is being computed ..." in capsys.readouterr().err


@pytest.mark.slow
def test_an_export_of_damaged_files_names_the_flag_that_takes_the_rest(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = max((data / "log").glob("*.log"))
    damaged = bytearray(file.read_bytes())
    damaged[60] ^= 1
    file.write_bytes(damaged)
    words = ["log", "export", str(data), "--to", str(tmp_path / "lake"), "--lake", "-o", "json"]
    assert cli.main(words) == 6
    assert f"the damage begins at offset {int(file.stem)}; --skip-damaged" in capsys.readouterr().err
    assert cli.main([*words, "--skip-damaged"]) == 0
    said = capsys.readouterr()
    assert json.loads(said.out)["end_offset"] == int(file.stem)
    assert f"the offsets {int(file.stem)}-" in said.err
    assert f"told are the offsets 0-{int(file.stem) - 1}" in said.err
    assert (tmp_path / "lake" / f"cluster={CLUSTER_ID}" / "manifest.json").exists()
