"""The library answers at any offset as the log's own fold does, and says which offset it showed."""

import http.server
import json
import random
import re
import threading
import urllib.parse
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from metadata_log import replay
from metadata_log.digest import digest
from metadata_log.errors import (
    BrokerNotAvailable,
    DamagedFile,
    InvalidRequest,
    OffsetCompacted,
    OffsetInFuture,
    PositionOutOfRange,
)
from metadata_log.replay import names
from metadata_log.replay.analyses import in_duckdb
from metadata_log.replay.catalog import TABLES, described, sql_name
from metadata_log.replay.digest import digest_of
from metadata_log.replay.engines import DuckDb, rows
from metadata_log.replay.export import export_log
from metadata_log.replay.named_tables import NamedTables, TableMethod
from metadata_log.replay.plain import plain_rows_of
from metadata_log.replay.report import report_of
from metadata_log.replay.state import State, state_at
from metadata_log.replay.subjects.registry import SUBJECTS
from metadata_log.replay.tables import SMALL_ROWS, SNAPSHOTS
from snapshots.snapshot_file import write_snapshot
from tests.support.exports import frames_of, image_at
from tests.support.histories import CLUSTER_ID, Step, history_of

pytestmark = pytest.mark.slow

HISTORY = [*history_of(7, 220)]
END = HISTORY[-1].batch.end_offset


@pytest.fixture(scope="module")
def export(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an export in three parts, so that a state can begin at snapshots."""
    to = tmp_path_factory.mktemp("export")
    for until in (END // 3, END // 2, None):
        export_log(frames_of(HISTORY), to, cluster_id=CLUSTER_ID, until=until)
    return to


@pytest.fixture(scope="module")
def log(export: Path) -> replay.Log:
    return replay.open(export)


@pytest.mark.parametrize("name", TABLES)
def test_every_column_is_described_with_its_type(name: str, log: replay.Log) -> None:
    table = log.engine.arrow(log.named_table_of(name))
    told = described(name)
    assert told.about
    assert [(field.name, sql_name(field.type)) for field in table.schema] == [
        (column.name, column.type) for column in told.columns
    ]


def test_a_large_log_has_the_tables_that_a_small_one_has(export: Path, log: replay.Log) -> None:
    """Goal: what an engine computes at once for a small log, it computes lazily for a large one, with the same rows. Method:
    each table of the catalog both ways.
    """
    assert log.export.is_small
    large = replay.open(export, DuckDb(is_quick=False))
    for name in TABLES:
        one, other = (each.engine.arrow(each.table_of(name)) for each in (log, large))
        assert one.schema == other.schema, name
        assert sorted(map(repr, rows(one))) == sorted(map(repr, rows(other))), name


def test_what_a_log_begins_with_counts_for_how_large_it_is(log: replay.Log) -> None:
    """Goal: a log of few records over a large state is no small one."""
    (state, *_) = (file for file in log.export.files if file.family == SNAPSHOTS)
    assert log.export.row_count < SMALL_ROWS
    export = replace(log.export, files=(*log.export.files, replace(state, rows=SMALL_ROWS)))
    assert (export.row_count, export.is_small) == (END + SMALL_ROWS, False)


def test_every_table_of_the_catalog_is_a_method(log: replay.Log) -> None:
    """Goal: no table is forgotten, and none is named that the catalog lacks. Method: both lists are walked."""
    lake = replay.Lake({CLUSTER_ID: log})
    for name in TABLES:
        by_name = getattr(log, name)()
        assert by_name.columns == log.table(name).columns
        assert getattr(lake, name)().columns == ["cluster", *by_name.columns]
        assert name in dir(log)
        if name != "history":
            assert getattr(replay.Log, name).__name__ == name
            assert described(name).about in (getattr(log, name).__doc__ or "")
    by_name, by_table = log.leader_intervals().fetchall(), log.table("leader_intervals").fetchall()
    assert by_name and sorted(by_name, key=repr) == sorted(by_table, key=repr), "its rows have no order"
    named = {name for name, found in vars(NamedTables).items() if isinstance(found, TableMethod)}
    assert named == set(TABLES) - {"history"}
    assert log.between(END // 3, END).history().columns == [
        column.name for column in described("history").columns
    ]


def test_the_state_at_any_offset_is_the_folds(log: replay.Log) -> None:
    """C1"""
    rng = random.Random(8)
    for at in (0, END, END // 2, *(rng.randrange(END) for _ in range(4))):
        position, image = log.position(at), image_at(HISTORY, at)
        parts = log._state(position)
        assert position.end_offset == image.end_offset
        assert digest_of(log.engine, State(end_offset=at, parts=parts)) == digest(image)


def test_the_note_says_what_is_shown(log: replay.Log) -> None:
    step = next(step for step in HISTORY if len(step.batch.records) > 3)
    base, last = step.batch.base_offset, step.batch.last_offset
    assert log.position(base + 1).note == f"{base + 1} lies inside the batch {base}-{last}; shown at {base}"
    assert log.position(str(base)) == log.position(base)
    assert log.position(datetime(2000, 1, 1, tzinfo=UTC)).note.startswith(
        "no record of the log is as old as 2000"
    )
    assert log.position(None).note == f"the log ends at {END}"


def test_whoever_asks_inside_a_batch_is_told(log: replay.Log, caplog: pytest.LogCaptureFixture) -> None:
    step = next(step for step in HISTORY if len(step.batch.records) > 3)
    inside, base = step.batch.base_offset + 1, step.batch.base_offset
    note = f"{inside} lies inside the batch {base}-{step.batch.last_offset}; shown at {base}"
    asked: list[Callable[[], object]] = [
        lambda: log.state_at(inside),
        lambda: log.diff(inside, END),
        lambda: log.between(inside, END),
    ]
    for ask in asked:
        caplog.clear()
        ask()
        assert note in caplog.messages
    caplog.clear()
    log.state_at(base)
    assert caplog.messages == []


def test_a_time_is_the_end_of_what_was_written_up_to_it(log: replay.Log) -> None:
    """Goal: clocks may step back. Method: what comes before the first batch that is later."""
    for step in HISTORY[::20]:
        time_ms = step.batch.appended_at_ms
        later = (other for other in HISTORY if other.batch.appended_at_ms > time_ms)
        end = next((other.batch.base_offset for other in later), END)
        assert log.position(datetime.fromtimestamp(time_ms / 1000, UTC)).end_offset == end


def test_moments_of_numpy_and_dates_are_moments(log: replay.Log, caplog: pytest.LogCaptureFixture) -> None:
    step = next(step for step in HISTORY if len(step.batch.records) > 3)
    inside = step.batch.base_offset + 1
    for offset in (np.int64(inside), np.uint32(inside)):
        caplog.clear()
        assert log.position(offset) == log.position(inside)
        assert caplog.messages == [log.position(inside).note] * 2
    time = datetime.fromtimestamp(step.batch.appended_at_ms / 1000, UTC)
    for same in (np.datetime64(time.replace(tzinfo=None)), time.replace(tzinfo=None), pd.Timestamp(time)):
        assert log.position(same) == log.position(time)
    day = time.date() + timedelta(days=1)
    midnight = datetime(day.year, day.month, day.day, tzinfo=UTC)
    assert log.position(day) == log.position(np.datetime64(day)) == log.position(midnight)


@pytest.mark.parametrize("at", [1.5, np.float64(2), Decimal(1), np.datetime64("NaT"), pd.NaT, b"1", [1]])
def test_what_is_no_moment_is_refused_by_name(at: Any, log: replay.Log) -> None:
    for ask in (log.position, log.state_at, log.between, log.diff):
        with pytest.raises(InvalidRequest, match=re.escape(repr(at))):
            ask(at)


def test_a_difference_is_what_the_two_states_do_not_share(log: replay.Log) -> None:
    """C1"""
    for first, last in ((0, END), (END // 3, END // 2), (END // 2, END)):
        before, after = (_by_entity(log, at) for at in (first, last))
        wanted: Counter[tuple[Any, ...]] = Counter()
        for entity in before.keys() | after.keys():
            old, new = before.get(entity, {}), after.get(entity, {})
            kind = "created" if not old else "deleted" if not new else "modified"
            wanted.update(
                ((new or old)["key"], kind, field)
                for field in old.keys() | new.keys()
                if old.get(field) != new.get(field)
                and field not in {"key", "log_offset", "ts", "cause_code", "topic_seq", "type", "type_name"}
            )
        rows = log.diff(first, last).to_arrow_table().to_pylist()
        assert Counter((row["key"], row["kind"], row["field"]) for row in rows) == wanted


def _by_entity(log: replay.Log, at: int) -> dict[tuple[Any, ...], dict[str, Any]]:
    found = {}
    for name, part in state_at(log.engine, log.export, at).parts.items():
        subject = SUBJECTS[name]
        for row in (
            log.engine.relation(part)
            .project(f"*, {in_duckdb(subject.key)} AS key")
            .to_arrow_table()
            .to_pylist()
        ):
            found[(name, *(repr(row[column]) for column in subject.identity))] = row
    return found


def test_a_part_of_the_log_counts_within_itself(log: replay.Log) -> None:
    part = log.between(END // 3, 2 * END // 3)
    first, last = part.first, part.last
    rows = part.table("leader_intervals").to_arrow_table().to_pylist()
    led = {(row["topic_id"], row["partition"]) for row in rows if row["lasting"]}
    living = part.table("partitions").to_arrow_table().to_pylist()
    assert led == {
        (row["topic_id"], row["partition"])
        for row in living
        if row["topic_id"]
        in set(part.table("topics").filter("type = 2").to_arrow_table()["topic_id"].to_pylist())
    }
    span_ms = max(step.batch.appended_at_ms for step in HISTORY) - first.time_ms
    assert all(0 <= row["duration_ms"] <= span_ms for row in rows)
    offsets = part.records().to_arrow_table()["log_offset"].to_pylist()
    assert (min(offsets), max(offsets) + 1) == (first.end_offset, last.end_offset)


def test_the_history_of_a_key_is_its_records(log: replay.Log) -> None:
    rows = log.history("broker:11").to_arrow_table().to_pylist()
    of_broker = log.sql("SELECT log_offset FROM broker_changes WHERE broker_id = 11").to_arrow_table()
    assert {row["log_offset"] for row in rows} >= set(of_broker["log_offset"].to_pylist())
    name = (
        log.sql("SELECT topic_name FROM records WHERE type = 5 LIMIT 1")
        .to_arrow_table()["topic_name"][0]
        .as_py()
    )
    keys = {row["key"] for row in log.history(f"topic:{name}").to_arrow_table().to_pylist()}
    assert f"topic:{name}" in keys and all(key.partition("/")[0] == f"topic:{name}" for key in keys)


def test_sql_reads_any_table(log: replay.Log) -> None:
    query = "WITH n AS (SELECT count(*) AS c FROM records) SELECT c, (SELECT count(*) FROM brokers) FROM n;"
    ((records, brokers),) = log.sql(query).fetchall()
    assert (records, brokers) == (END, len(HISTORY[-1].image.brokers))


def test_what_cannot_be_answered_is_refused(log: replay.Log) -> None:
    for asked, error in (
        (lambda: log.state_at(END + 1), OffsetInFuture),
        (lambda: log.state_at(-1), OffsetCompacted),
        (lambda: log.position("yesterday"), InvalidRequest),
        (lambda: log.between(END, END), PositionOutOfRange),
        (lambda: log.history("orders"), InvalidRequest),
        (lambda: log.sql("SELECT 1; SELECT 2"), InvalidRequest),
        (lambda: log.sql(""), InvalidRequest),
        (
            lambda: plain_rows_of(log.engine.answer(log.sql("SELECT CAST(type_name AS INT) FROM records"))),
            InvalidRequest,
        ),
        (lambda: log.history("topic:a' OR 'b"), InvalidRequest),
        (lambda: log.table("leaders"), InvalidRequest),
        (lambda: log.sql("SELECT nothing FROM records"), InvalidRequest),
        (lambda: replay.open(log.export.directory, "polars"), InvalidRequest),
    ):
        with pytest.raises(error) as refused:
            asked()
        assert "\n" not in str(refused.value)


# --- where a log comes from


def _written(history: Sequence[Step], to: Path) -> Path:
    """Write a data directory's segments: two files."""
    folder = to / "log"
    folder.mkdir(parents=True)
    half = len(history) // 2
    for part in (history[:half], history[half:]):
        path = folder / f"{part[0].batch.base_offset:020d}.log"
        path.write_bytes(b"".join(step.frame for step in part))
    return to


def test_a_data_directory_is_a_log(tmp_path: Path) -> None:
    directory = _written(HISTORY[:40], tmp_path)
    with (directory / "log" / f"{HISTORY[20].batch.base_offset:020d}.log").open("ab") as file:
        file.write(HISTORY[40].frame[:50])  # as it is written just now
    for path in (directory, directory / "log"):
        log = replay.open(path)
        assert log.export.digest == digest(HISTORY[39].image)
        scratch = log.export.directory
        del log
        assert not scratch.exists(), "gone with the log"


def test_a_damaged_segment_is_named_with_its_byte(tmp_path: Path) -> None:
    directory = _written(HISTORY[:40], tmp_path)
    path = directory / "log" / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    at = sum(len(step.frame) for step in HISTORY[:5])
    data[at + 45] ^= 1
    path.write_bytes(data)
    offset = HISTORY[5].batch.base_offset
    with pytest.raises(
        DamagedFile, match=rf"{path}: byte {at}: .*: the damage begins at offset {offset}; --skip-damaged, "
    ):
        replay.open(directory)


def _damaged(to: Path, steps: Sequence[int]) -> tuple[Path, list[Path]]:
    """Return a data directory where each of these batches has a wrong byte, and its files."""
    directory = _written(HISTORY[:80], to)
    files = sorted((directory / "log").glob("*.log"))
    for step in steps:
        base = HISTORY[step].batch.base_offset
        path = max(file for file in files if int(file.stem) <= base)
        first = next(n for n, other in enumerate(HISTORY) if other.batch.base_offset == int(path.stem))
        data = bytearray(path.read_bytes())
        data[sum(len(other.frame) for other in HISTORY[first:step]) + 45] ^= 1
        path.write_bytes(data)
    return directory, files


def test_of_a_damaged_log_the_longest_whole_part_is_told(tmp_path: Path) -> None:
    """Goal: a rotten byte does not hide the rest. Method: without a snapshot the beginning is told, with one the end."""
    directory, (_, path) = _damaged(tmp_path, (50, 51, 55))
    log = replay.open(directory, skip_damaged=True)
    assert log.export.digest == digest(HISTORY[49].image)
    first, second, told = log.missing
    base, last = HISTORY[50].batch.base_offset, HISTORY[51].batch.last_offset
    assert (
        first.startswith(f"the offsets {base}-{last} are missing: ")
        and f"{path}: byte " in first
        and "crc" in first
    )
    assert second.startswith(f"the offsets {HISTORY[55].batch.base_offset}-")
    assert told == f"told are the offsets 0-{base - 1}, the longest part that is whole"
    assert log.missing[0] in report_of(log)
    with pytest.raises(DamagedFile, match=f"{path}: byte "):
        replay.open(directory)


def test_behind_damage_a_snapshot_is_a_beginning(tmp_path: Path) -> None:
    directory, _ = _damaged(tmp_path, (5,))
    image = HISTORY[20].image
    (directory / "snapshots").mkdir()
    write_snapshot(image, directory / "snapshots")
    log = replay.open(directory, skip_damaged=True)
    assert (log.export.first_offset, log.export.digest) == (image.end_offset, digest(HISTORY[79].image))
    assert log.missing[-1].startswith(f"told are the offsets {image.end_offset}-")


def test_damage_without_any_beginning_is_refused(tmp_path: Path) -> None:
    directory, _ = _damaged(tmp_path, (0,))
    with pytest.raises(DamagedFile, match="nothing can be told without the beginning"):
        replay.open(directory, skip_damaged=True)


class _Controller(http.server.BaseHTTPRequestHandler):
    """As a controller: its status, and its log in pages of two frames."""

    def do_GET(self) -> None:
        url = urllib.parse.urlsplit(self.path)
        if url.path == "/v1/quorum":
            body = json.dumps(
                {
                    "cluster_id": CLUSTER_ID,
                    "log_start_offset": 0,
                    "high_watermark": HISTORY[39].batch.end_offset,
                }
            ).encode()
        else:
            query = dict(urllib.parse.parse_qsl(url.query))
            first, until = int(query["from"]), int(query["until"])
            steps = [s for s in HISTORY if s.batch.end_offset > first and s.batch.end_offset <= until]
            body = b"".join(step.frame for step in steps[:2])
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def controller() -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Controller)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_controllers_url_is_a_log(controller: str) -> None:
    assert replay.open(controller).export.digest == digest(HISTORY[39].image)


@pytest.mark.parametrize("of", ["s3a://logs/controller-1", "hdfs://name:8020/log", Path("s3a://logs/export")])
def test_a_log_on_another_file_system_is_left_to_sparks_source(of: str | Path) -> None:
    with pytest.raises(InvalidRequest, match=r"lies on another file system, .* copy the directory to this"):
        replay.open(of)


def test_a_local_directory_may_be_named_as_uri(log: replay.Log) -> None:
    assert replay.open(log.export.directory.as_uri()).export == log.export


def test_nobody_at_the_url_is_told_in_one_line() -> None:
    with pytest.raises(BrokerNotAvailable, match="no controller answers there"):
        replay.open("http://127.0.0.1:1")


def test_codes_have_kafkas_names_in_tables(log: replay.Log) -> None:
    """Goal: no table but `records` shows a bare code. Method: every such column, beside its numbers named in Python."""
    codes = {
        "resource_type": names.RESOURCE_TYPES,
        "leader_recovery_state": names.RECOVERY_STATES,
        "prev_leader_recovery_state": names.RECOVERY_STATES,
    }
    bits = {"changed": names.CHANGED, "flags": names.FLAGS, "prev_flags": names.FLAGS}

    def named(table: str, column: str, value: Any) -> Any:
        if value is None:
            return None
        if column in bits:
            return [name for bit, name in bits[column].items() if value & bit]
        if table in {"acls", "acl_changes"} and column == "resource_type":
            return names.ACL_RESOURCE_TYPES[value]
        if column in codes:
            return codes[column][value]
        return [
            each | {"security_protocol": names.SECURITY_PROTOCOLS[each["security_protocol"]]}
            for each in value
        ]

    seen: set[str] = set()
    for table in set(TABLES) - {"records"}:
        for column in names.NAMED.keys() & {column.name for column in described(table).columns}:
            shown = log.engine.arrow(log.named_table_of(table)).column(column).to_pylist()
            below = log.engine.arrow(log.table_of(table)).column(column).to_pylist()
            assert sorted(map(repr, shown)) == sorted(repr(named(table, column, value)) for value in below)
            seen.add(column)
    assert seen == names.NAMED.keys()
    assert log.engine.arrow(log.named_table_of("records")) == log.engine.arrow(log.table_of("records"))


@pytest.mark.parametrize(
    ("column", "code", "shown"),
    [
        ("resource_type", 64, "64"),
        ("leader_recovery_state", 2, "2"),
        ("changed", 1 + 16 + 32, ["leader", "48"]),
        ("flags", 4, ["4"]),
        ("flags", 0, []),
        ("prev_flags", None, None),
    ],
)
def test_a_number_without_a_name_is_shown_as_text(
    log: replay.Log, column: str, code: int | None, shown: object
) -> None:
    value = "NULL" if code is None else code
    query = f"SELECT {names.named(column, 'duckdb', table='partitions')} AS shown"
    rows = log.sql(f"{query} FROM (SELECT CAST({value} AS INT) AS {column})").to_arrow_table().to_pylist()
    assert rows == [{"shown": shown}]


def test_a_difference_shows_names(log: replay.Log) -> None:
    rows = log.diff(0, END).to_arrow_table().to_pylist()
    found = {row["field"]: row["after"] for row in rows if row["kind"] == "created"}
    for is_acl, known in ((True, names.ACL_RESOURCE_TYPES), (False, names.RESOURCE_TYPES)):
        types = {
            row["after"] or row["before"]
            for row in rows
            if row["field"] == "resource_type" and row["key"].startswith("acl:") is is_acl
        }
        assert types and types <= set(known.values())
    assert found["leader_recovery_state"] in names.RECOVERY_STATES.values()
    assert '"security_protocol":"PLAINTEXT"' in found["endpoints"]
