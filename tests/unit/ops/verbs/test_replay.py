"""`replay`: the report in its three forms, and the answers of the other verbs."""

import html.parser
import io
import json
from contextlib import redirect_stdout
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from metadata_log import replay
from metadata_log.digest import digest
from metadata_log.errors import InvalidRequest
from metadata_log.replay.catalog import TABLES
from metadata_log.replay.export import export_log
from metadata_log.replay.kafka.log import export_kafka
from ops import cli
from tests.support import kafka_log
from tests.support.exports import frames_of
from tests.support.histories import CLUSTER_ID, history_of

pytestmark = pytest.mark.slow

HISTORY = [*history_of(32, 80)]
END = HISTORY[-1].batch.end_offset
LARGE = next(step.batch for step in HISTORY[20:] if len(step.batch.records) > 2)


@pytest.fixture(scope="module")
def export(tmp_path_factory: pytest.TempPathFactory) -> str:
    to = tmp_path_factory.mktemp("export")
    export_log(frames_of(HISTORY), to, cluster_id=CLUSTER_ID)
    return str(to)


@pytest.fixture(scope="module")
def whole(export: str) -> dict[str, Any]:
    """Return the report of the whole log as `-o json` has it."""
    said = io.StringIO()
    with redirect_stdout(said):
        assert cli.main(["replay", "report", "--export", export, "-o", "json"]) == 0
    found: dict[str, Any] = json.loads(said.getvalue())
    return found


def answered(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[Any, str]:
    assert cli.main(["replay", *argv, "-o", "json"]) == 0
    out, err = capsys.readouterr()
    return json.loads(out), err


class _Page(html.parser.HTMLParser):
    """Counts tags, and fails where one is closed that was not opened last."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.links: list[str] = []
        self.anchors: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.seen.append(tag)
        for name, value in attrs:
            assert name != "src" and (name != "href" or value.startswith("#")), "nothing is loaded"
            if name == "href":
                self.links.append(value[1:])
            if name == "id":
                self.anchors.append(value)
        if tag not in {"meta", "br"}:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_report_is_one_page_with_charts(export: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["replay", "report", "--export", export, "-o", "html"]) == 0
    page = _Page()
    page.feed(capsys.readouterr().out)
    assert page.open == []
    assert page.seen.count("figure") == 4 and {"rect", "path", "pattern"} <= set(page.seen)
    assert len(set(page.anchors)) == len(page.anchors)
    assert page.links and set(page.links) <= set(page.anchors), "each link leads somewhere"


def test_the_report_of_a_part_says_where_it_was_cut(export: str, capsys: pytest.CaptureFixture[str]) -> None:
    inside = LARGE.base_offset + 1
    assert cli.main(["replay", "report", "--export", export, "--from", str(inside)]) == 0
    text = capsys.readouterr().out
    assert (
        f"{inside} lies inside the batch {LARGE.base_offset}-{LARGE.last_offset}; shown at {LARGE.base_offset}"
        in text
    )
    assert f"- Offsets {LARGE.base_offset:,} to {END:,}" in text
    for section in ("## Summary", "## Incidents", "## Voters", "## Availability of brokers"):
        assert section in text


def test_the_report_of_one_topic_and_broker_leaves_the_others_out(
    export: str, whole: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    found, _ = answered(capsys, "report", "--export", export, "--topic", "orders", "--broker", "11")
    assert (found["topic"], found["broker"]) == ("orders", 11)
    for name in ("topic_events", "unavailability", "topic_churn", "elections"):
        assert found[name] == [row for row in whole[name] if row["topic_name"] == "orders"], name
    for name in ("fencings", "broker_availability", "broker_state_intervals", "leadership_balance"):
        rows = [row["broker_id"] for row in found[name]]
        assert set(rows) <= {11} and len(rows) == sum(row["broker_id"] == 11 for row in whole[name]), name
    assert found["controller_takeovers"] == whole["controller_takeovers"]
    assert {row["resource_name"] for row in found["config_changes"] if row["resource_type"] == 2} <= {
        "orders"
    }
    assert cli.main(["replay", "report", "--export", export, "--topic", "orders", "-o", "html"]) == 0
    page = capsys.readouterr().out
    assert (
        "only <code>orders</code>" in page and "orders:0: leader" in page and "audit-2:0: leader" not in page
    )
    assert cli.main(["replay", "report", "--export", export, "--topic", "none"]) == 3
    assert "names no topic 'none'" in capsys.readouterr().err
    assert cli.main(["replay", "report", "--export", export, "--broker", "11"]) == 0
    text = capsys.readouterr().out
    assert (
        "Of brokers, only 11; counts by topic, by partition and by who asked are those of all brokers" in text
    )
    assert "- Broker 11 served" in text


def test_the_report_as_json_has_its_tables_whole(
    export: str, whole: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert whole["to"]["end_offset"] == END
    assert (whole["missing"], whole["digest"]) == ([], digest(HISTORY[-1].image))
    part, _ = answered(capsys, "report", "--export", export, "--to", str(LARGE.base_offset))
    assert part["is_digest_the_logs_own"] is None
    offsets = [row["log_offset"] for row in whole["config_changes"]]
    assert offsets == sorted(offsets) and len(whole["broker_availability"]) > 1


def test_verbs_answer_and_name_the_boundary(export: str, capsys: pytest.CaptureFixture[str]) -> None:
    inside = str(LARGE.base_offset + 1)
    shown = f"shown at {LARGE.base_offset}"
    rows, _ = answered(capsys, "sql", "SELECT count(*) AS n FROM records", "--export", export)
    assert rows == [{"n": END}]
    rows, said = answered(capsys, "state", "brokers", "--export", export, "--at", inside)
    assert shown in said and all(row["type_name"] == "RegisterBroker" for row in rows)
    found, said = answered(capsys, "digest", "--export", export, "--at", inside, "--engine", "duckdb")
    assert shown in said and found["end_offset"] == LARGE.base_offset
    rows, said = answered(capsys, "diff", "--export", export, "--from", inside, "--to", str(END))
    assert (
        shown in said and rows and {"key", "kind", "field", "before", "after", "log_offset"} == set(rows[0])
    )
    rows, _ = answered(capsys, "history", "cluster", "--export", export)
    assert [row["log_offset"] for row in rows] == sorted(row["log_offset"] for row in rows)
    rows, _ = answered(capsys, "tables")
    assert [row["table"] for row in rows] == [*TABLES]
    rows, _ = answered(capsys, "tables", "incidents")
    assert all(row["meaning"] for row in rows)


@pytest.mark.parametrize(
    ("argv", "code", "said"),
    [
        (("sql", "SELECT nothing FROM records"), 3, "the query cannot be run"),
        (("sql", "SELECT 1; SELECT 2"), 3, "it has 2 statements: write one SELECT"),
        (("sql", "DROP TABLE records"), 3, "it is a statement of DROP: write a SELECT"),
        (("sql", "SELECT * FROM incidents WHERE from_ts > 'yesterdayish'"), 3, "yesterdayish"),
        (("sql", "SELECT CAST(type_name AS INT) FROM records"), 3, "Could not convert string"),
        (("sql", "SELECT * FROM read_csv('/etc/passwd')"), 3, "the query cannot be run: Permission Error"),
        (("sql", "SELECT TIMESTAMP '0001-01-01' - INTERVAL 9 YEAR"), 3, "cast such columns to text"),
        (("history", "orders"), 3, "is no key: topic:NAME"),
        (("history", "topic:none"), 3, "the log tells nothing of topic:none in the offsets 0 up to "),
        (("history", "broker:999"), 3, "the log tells nothing of broker:999"),
        (("history", "controller:999"), 3, "the log tells nothing of controller:999"),
        (("report", "--broker", "999"), 3, "the log names no broker 999"),
        (("state", "brokers", "--at", "99999"), 3, "offset 99999 lies beyond this export"),
        (("diff", "--from", "0", "--to", "99999999"), 3, "lies beyond this export"),
        (("state", "leaders"), 2, "is no subject: topics"),
    ],
)
def test_what_cannot_be_answered_is_one_line(
    argv: tuple[str, ...], code: int, said: str, export: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["replay", *argv, "--export", export]) == code
    lines = capsys.readouterr().err.splitlines()
    assert said in lines[-1] and "report" not in lines[-1]


def test_every_answer_is_json(export: str, capsys: pytest.CaptureFixture[str]) -> None:
    query = (
        "SELECT struct_pack(a := ts, b := [{'c': CAST(ts AS TIMESTAMP)}]) AS s, CAST('nan' AS DOUBLE) AS x,"
        " [1.5, CAST('inf' AS DOUBLE)] AS y, MAP {'k': 1} AS m FROM records WHERE log_offset = 0"
    )
    rows, _ = answered(capsys, "sql", query, "--export", export)
    time = datetime.fromtimestamp(HISTORY[0].batch.appended_at_ms / 1000, UTC).isoformat(
        timespec="milliseconds"
    )
    time = time.replace("+00:00", "Z")
    assert rows == [{"s": {"a": time, "b": [{"c": time}]}, "x": None, "y": [1.5, None], "m": [["k", 1]]}]


def test_a_folder_without_a_log_says_how_to_make_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["replay", "report", "--export", str(tmp_path)]) == 3
    assert (
        "is empty: it holds no log and no export: name an export (`metaquorum log export --to"
        in capsys.readouterr().err
    )


def test_a_path_without_a_log_says_what_is_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Goal: what is named instead is right. Method: folders of logs, whose log is then asked for by that name."""
    ours, theirs, cluster = tmp_path / "ours", tmp_path / "theirs", tmp_path / "cluster"
    kafka_log.written(theirs, [kafka_log.batch(0, [kafka_log.leader_change(1, [1, 2, 3])], control=2)])
    for node in ("broker-11", "controller-1"):
        (cluster / node / "log").mkdir(parents=True)
        (cluster / node / "log" / f"{0:020d}.log").write_bytes(HISTORY[0].frame)
    export_log(frames_of(HISTORY[:20]), ours / "a", cluster_id=CLUSTER_ID)
    kafkas = tmp_path / "kafkas"
    kafkas.mkdir()
    (kafkas / "node-1").symlink_to(theirs)
    (empty := tmp_path / "node" / "log").mkdir(parents=True)
    (empty.parent / "meta.json").write_text("{}")
    (stray := tmp_path / "a.txt").write_text("")
    for path, form, said in (
        (
            cluster,
            None,
            f"logs of metaquorum, such as the data directories of nodes: name one: {cluster / 'controller-1'}",
        ),
        (kafkas, None, f"metadata logs of Apache Kafka: name one: {kafkas / 'node-1'}"),
        (ours, None, f"exports: name one: {ours / 'a'}"),
        (theirs, "metaquorum", "holds the metadata log of an Apache Kafka cluster: name the format kafka"),
        (theirs / "__cluster_metadata-0", "metaquorum", "holds the metadata log of an Apache Kafka cluster"),
        (cluster / "controller-1", "kafka", "holds a log of metaquorum: name the format metaquorum"),
        (cluster, "kafka", "one level below"),
        (empty.parent, None, "its log holds no segment"),
        (tmp_path / "nowhere", None, "does not exist"),
    ):
        words = [] if form is None else ["--format", form]
        assert cli.main(["replay", "sql", "SELECT 1", "--export", str(path), *words]) == 3
        assert said in capsys.readouterr().err, path
        if path.exists() and path != ours:
            assert cli.main(["log", "export", str(path), "--to", str(tmp_path / "to"), *words]) == 3
            assert said in capsys.readouterr().err, path
    assert cli.main(["log", "export", str(ours / "a"), "--to", str(tmp_path / "to")]) == 3
    assert "is an export already" in capsys.readouterr().err
    with pytest.raises(InvalidRequest, match="is a file, not a directory"):
        replay.open(stray)
    for path in (cluster / "controller-1", kafkas / "node-1", ours / "a"):
        assert cli.main(["replay", "sql", "SELECT 1", "--export", str(path)]) == 0


def test_a_damaged_directory_is_told_as_far_as_it_is_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = bytearray(b"".join(step.frame for step in HISTORY))
    data[-1] ^= 1
    (tmp_path / f"{0:020d}.log").write_bytes(data + HISTORY[-1].frame)
    (tmp_path / f"{END:020d}.log").touch()
    assert cli.main(["replay", "sql", "SELECT 1", "--export", str(tmp_path)]) == 6
    assert "byte " in capsys.readouterr().err
    query = "SELECT count(*) AS n FROM records"
    rows, said = answered(capsys, "sql", query, "--export", str(tmp_path), "--skip-damaged")
    last = HISTORY[-1].batch
    assert rows == [{"n": last.base_offset}]
    assert f"the offsets {last.base_offset}-{last.last_offset} are missing" in said
    found, _ = answered(capsys, "report", "--export", str(tmp_path), "--skip-damaged")
    missing, told = found["missing"]
    assert missing.startswith(f"the offsets {last.base_offset}-{last.last_offset} are missing: ")
    assert told == f"told are the offsets 0-{last.base_offset - 1}, the longest part that is whole"
    assert found["digest"] == digest(HISTORY[-2].image) and found["is_digest_the_logs_own"] is True


def test_a_url_is_asked_as_a_controller(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["replay", "report", "--export", "http://127.0.0.1:1"]) == 4
    assert "no controller answers there" in capsys.readouterr().err


def test_an_operator_of_kafka_needs_one_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Goal: Kafka's own log needs no export and no other tool. Method: a directory as Kafka names it, and a lake."""
    directory = kafka_log.written(
        tmp_path / "metadata", [kafka_log.batch(0, [kafka_log.leader_change(1, [1, 2, 3])], control=2)]
    )
    answer, _ = answered(capsys, "report", "--export", str(directory), "--format", "kafka")
    assert answer["cluster_id"] == "HandWrittenHandWritten"
    assert [row["controller_id"] for row in answer["controller_takeovers"]] == [1]
    for path in (directory, directory / "__cluster_metadata-0"):
        rows, _ = answered(capsys, "sql", "--export", str(path), "SELECT voter_ids FROM voters_over_time")
        assert rows == [{"voter_ids": [1, 2, 3]}]
    lake = tmp_path / "lake"
    export_log(frames_of(HISTORY[:20]), lake / f"cluster={CLUSTER_ID}", cluster_id=CLUSTER_ID)
    export_kafka(directory, lake, in_lake=True)
    rows, _ = answered(
        capsys, "sql", "--export", str(lake), "SELECT DISTINCT cluster FROM records ORDER BY cluster"
    )
    assert [row["cluster"] for row in rows] == [CLUSTER_ID, "HandWrittenHandWritten"]
