"""Edge: the verbs and their options, exit codes, and that nothing but one line reaches a user."""

import dataclasses
import inspect
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import click
import pytest

from metadata_log.errors import Fault, InvalidSettings, NotController, OutcomeUnknown, TopicAlreadyExists
from ops import cli
from ops.admin.exchange import Unreachable
from ops.command_line.options import Network, Noun, Output, Verb
from ops.local.cluster import ClusterMismatch
from ops.verbs import topics
from ops.when import AtOffset, AtTime

ROOT = Path(cli.__file__).parents[1]

VERBS = {
    *("topics alter", "diff", "report", "top"),
    *("quorum versions", "move controller", "move broker"),
    *("storage import-kafka", "storage export-kafka"),
    *("certificates list", "certificates rotate", "certificates revoke"),
    *(
        "up",
        "storage format",
        "storage info",
        "storage import-zookeeper",
        "controller run",
        "broker run",
        "broker verify",
        "quorum status",
        "quorum health",
        "quorum transfer",
        *("quorum add-voter", "quorum remove-voter", "quorum replace-voter"),
    ),
    *("brokers list", "brokers describe", "topics create", "topics list", "topics describe", "topics delete"),
    "topics undelete",
    *("backup take", "backup restore", "backup recover"),
    *(
        "brokers drain",
        "brokers unregister",
        "topics add-partitions",
        "features list",
        "features upgrade",
        "features downgrade",
    ),
    *(
        "partitions list",
        "partitions elect",
        "partitions reassign",
        "partitions rebalance",
        "partitions reassignments",
        "whatif",
        "plan",
        "apply",
        "roll controllers",
        "roll brokers",
        "roll all",
    ),
    *("partitions explain", "partitions imbalance", "brokers explain"),
    *(
        "configs list",
        "configs describe",
        "configs set",
        "configs unset",
        "configs append",
        "configs subtract",
    ),
    *("configs replace", "log dump", "log tail", "log verify", "log export"),
    *(
        "context list",
        "context set",
        "context use",
        "context delete",
        "config check",
        "version",
        "shell",
        "advise",
        "learn",
        *("acls list", "acls explain", "acls create", "acls delete"),
        *("users list", "users set-scram", "users delete-scram", "features preview", "bench console"),
        "completion",
        "help",
    ),
    *("controllers list", "controllers unregister"),
    *("quotas list", "quotas set", "quotas delete"),
    *("tokens list", "tokens create", "tokens renew", "tokens expire"),
    *("snapshot list", "snapshot take", "snapshot verify", "state", "replay digest", "replay report"),
    *("replay sql", "replay tables", "replay state", "replay diff", "replay history"),
    *("bench blackhole", "bench handover", "bench slow-disks", "bench steady"),
    *(
        "bench commit",
        "bench failover",
        "bench broker-loss",
        "bench broker-start",
        "bench restore",
        "bench fanout",
    ),
    *("bench answers", "bench decisions"),
    *("bench door", "bench idle", "bench import-kafka", "bench import-zookeeper"),
    *("bench kafka", "bench kafka-records"),
    *("bench replay", "bench replay-digest", "bench spark-source"),
    *("bench read-storm", "bench registrations", "bench restart", "bench soak"),
    "bench scale",
    *("bench storm", "bench unread"),
}


def declared() -> Iterator[tuple[str, Verb]]:
    """Yield each verb with the words that call it."""
    for name in cli.NOUNS:
        match cli.ROOT.get_command(click.Context(cli.ROOT), name):
            case Noun(commands=commands):
                for verb in commands.values():
                    assert isinstance(verb, Verb)
                    yield f"{name} {verb.name}", verb
            case Verb() as verb:
                yield name, verb


def words_by_verb() -> dict[str, set[str]]:
    """Return the options of each verb, by the words that call it."""
    return {path: {word for param in verb.params for word in param.opts} for path, verb in declared()}


def called(words: list[str]) -> tuple[Any, dict[str, Any]]:
    """Return the function that a command line calls, and what it gets."""

    def keep(verb: Verb, ctx: click.Context) -> tuple[Any, dict[str, Any]]:
        return verb.callback, verb.values(ctx)

    with patch.object(Verb, "invoke", keep), cli.ROOT.make_context("metaquorum", words) as ctx:
        called: tuple[Any, dict[str, Any]] = cli.ROOT.invoke(ctx)
    return called


def parse(line: str) -> SimpleNamespace:
    """Return the values of a verb's options, what it shares with other verbs among them."""
    values = called(line.split())[1]
    asked = values.get("asked")
    shared = dataclasses.asdict(asked) if isinstance(asked, Output) else {}
    return SimpleNamespace(**(shared | values))


def test_the_verbs_are_those_that_stand() -> None:
    assert {path for path, _ in declared()} == VERBS


def words_of(example: str) -> list[str]:
    command = example.split("#", maxsplit=1)[0].split(">", maxsplit=1)[0].split("<", maxsplit=1)[0]
    return shlex.split(command)


def test_every_verb_has_its_function_and_examples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "exists", lambda _: True)  # what the examples name need not be there
    for path, verb in declared():
        assert verb.examples, path
        for example in verb.examples:
            assert called(words_of(example))[0] is verb.callback, example


@pytest.mark.slow
def test_the_empty_text_is_no_value_of_any_verb(capsys: pytest.CaptureFixture[str]) -> None:
    """A script whose variable is not set: nothing is asked, read or founded for it. What verbs share is tried at one of
    them.
    """
    tried = set()
    for path, verb in declared():
        shared = () if verb.shared is None else [field.name for field in dataclasses.fields(verb.shared)]
        for param in verb.params:
            if getattr(param, "may_be_empty", False) or getattr(param, "is_flag", False):
                continue
            place = verb.shared if param.name in shared else path
            if (place, param.name) in tried:
                continue
            tried.add((place, param.name))
            words = [param.opts[-1], ""] if isinstance(param, click.Option) else [""]
            assert cli.main([*path.split(), *words]) == 2, (path, words)
            said = capsys.readouterr()
            assert "the empty text is no value" in said.err and said.out == "", (path, words, said)


def test_usage_shows_in_brackets_what_may_be_left_out() -> None:
    for path, verb in declared():
        ctx = click.Context(verb)
        for param in verb.params:
            if isinstance(param, click.Argument):
                assert param.make_metavar(ctx).startswith("[") is not param.required, path


def test_a_verb_takes_what_it_declares() -> None:
    """Goal: a function's keywords and the declared options are the same, and each has a type."""
    for path, verb in declared():
        assert verb.callback is not None
        signature = inspect.signature(verb.callback)
        own = {param.name for param in verb.params} - {"as_json"}
        own -= {"watch", "every"} if "watch" in own else set()  # the command's own
        if verb.shared is not None:
            own = own - {field.name for field in dataclasses.fields(verb.shared)} | {"asked"}
        named = {each.name for each in signature.parameters.values() if each.kind is not each.VAR_KEYWORD}
        assert named == own or (named < own and len(named) < len(signature.parameters)), path
        assert all(
            each.annotation is not inspect.Parameter.empty for each in signature.parameters.values()
        ), path


def test_network_verbs_share_their_flags() -> None:
    for path, verb in declared():
        known = {word for param in verb.params for word in param.opts}
        if path == "context set":
            continue  # it says what the others shall take
        assert (
            ("--bootstrap" in known)
            == ("--timeout" in known)
            == (verb.shared is not None and issubclass(verb.shared, Network))
        ), path
        if path not in {"controller run", "broker run", "help", "completion"}:
            assert {"-o", "--output", "--json"} <= known, path


@pytest.mark.parametrize(
    ("line", "name", "value"),
    [
        ("topics list", "timeout", 10.0),
        ("topics list --timeout 500ms", "timeout", 0.5),
        ("topics list --json", "output", "json"),
        ("quorum add-voter --id 4", "timeout", 10.0),
        ("quorum replace-voter --id 4", "timeout", 60.0),
        (
            "quorum remove-voter --id 4 --directory-id AQEBAQEBAQEBAQEBAQEBAQ",
            "directory_id",
            "AQEBAQEBAQEBAQEBAQEBAQ",
        ),
        ("topics list -o yaml", "output", "yaml"),
        ("quorum health --wait --for 1m --expect-brokers 3", "wait_s", 60.0),
        ("state --at 1234", "at", AtOffset(1234)),
        ("state --at t5", "at", AtTime(5)),
        ("log dump --from 3 --until 9", "until", AtOffset(9)),
        ("up", "controllers", None),
        ("up --controllers 10", "controllers", 10),
        ("configs set --cluster a=b=c d=", "keys", ("a=b=c", "d=")),
        ("bench failover --peer etcd", "peer", ("etcd",)),
        ("bench broker-loss", "leaderships", 1_000),
    ],
)
def test_arguments(line: str, name: str, value: object) -> None:
    assert getattr(parse(line), name) == value


def test_a_duration_ago_is_no_flag() -> None:
    assert isinstance(parse("state --at -2h").at, AtTime)
    assert isinstance(parse("log dump --from -90s --until -10s -o json").first, AtTime)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("", "required"),
        ("topcis list", "did you mean topics?"),
        ("topics creat x", "invalid choice: 'creat'; did you mean create?\n"),
        ("brokers ls", "invalid choice: 'ls'; did you mean list?\n"),
        ("acls rm", "did you mean delete?"),
        (
            "brokers fence 11",
            "a broker that is stopped is fenced, and drain --leaders-only takes its leaderships",
        ),
        ("help broekrs", "there is no 'broekrs'; did you mean brokers?\n"),
        ("help brokers drian", "there is no 'brokers drian'; did you mean drain?\n"),
        ("help volumes", "there is no 'volumes'; metaquorum help lists what there is\n"),
        ("topics", "add-partitions  Give topics more partitions."),
        ("volumes list", "'bench')\n"),
        ("bench commit --peer etc", "did you mean etcd?"),
        ("up --brokres 2", "did you mean --brokers?"),
        ("topics list --bootstap http://h:1", "did you mean --bootstrap?"),
        ("topics list --boot http://h:1", "unrecognized"),
        ("up --controllers 11", "from 1 to 10"),
        ("up --controllers 0", "from 1 to 10"),
        ("up --brokers -1", "from 0 to 50"),
        ("topics list --timeout 0", "duration"),
        ("topics list --timeout 99999999999", "longer than a day"),
        ("topics list -o xml", "invalid choice"),
        ("topics list --json -o yaml", "not allowed with"),
        ("state --at tomorrow", "is no offset"),
        ("brokers describe x", "whole number"),
        ("configs list", "required"),
        ("configs list --topic t --broker 1", "not allowed with"),
        ("configs set --topic t", "required"),
        ("storage format", "required"),
        ("storage import-kafka .", "required"),
        ("storage export-kafka .", "required"),
        ("storage import-zookeeper zoo:2181", "required"),
        ("quorum transfer --to x", "whole number"),
        ("quorum add-voter", "required"),
        ("quorum remove-voter --id 4 --directory-id x", "22 characters"),
        ("quorum replace-voter --id 4 --directory-id AQEBAQEBAQEBAQEBAQEBAQ", "unrecognized"),
        ("bench commit --peer zookeeper", "invalid choice"),
        ("log export --to=", "--to: the empty text is no value"),
        (f"log export --to {__file__}", f"--to: {__file__} is no directory: name one, or one to be made"),
        (f"log export --to {__file__}/a/b", f"{__file__} is no directory"),
        (f"replay report --export {__file__}", f"{__file__} is no directory"),
    ],
)
def test_usage_errors_are_exit_2(capsys: pytest.CaptureFixture[str], line: str, said: str) -> None:
    assert cli.main(line.split()) == 2
    captured = capsys.readouterr()
    assert said in captured.err
    assert captured.out == ""
    assert "Traceback" not in captured.err


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("state --at yesterday", "duration ago (-2h, -90s)\n"),
        ("topics create p --assignment [[11],[12]] --partitions 2", "leave the two counts out\n"),
        ("replay digest --export ex --at -1s", "--at"),
        ("topics list --directory-ids x", "unrecognized arguments: --directory-ids\n"),
        ("topics list partitoins", "unrecognized arguments: partitoins\n"),
    ],
)
def test_a_message_that_says_what_is_wrong_has_no_hint(
    capsys: pytest.CaptureFixture[str], line: str, said: str
) -> None:
    """Goal: no advice against the message's own. Options of other verbs are no advice either."""
    assert cli.main(line.split()) == 2
    captured = capsys.readouterr()
    assert said in captured.err
    assert "did you mean" not in captured.err


def test_a_verb_that_names_its_options_has_no_hint(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    mismatch = ClusterMismatch("d holds 1 controllers: leave --controllers out, or take another --dir")
    with patch("ops.local.foreground.run_in_foreground", side_effect=mismatch):
        assert cli.main(["up", "--dir", str(tmp_path)]) == 2
    assert capsys.readouterr().err.endswith("out, or take another --dir\n")


@pytest.mark.parametrize(
    "line",
    [
        "topics create t --partitions 1 --assignment [[1]]",
        "topics create t --assignment [1]",
        "topics create t --assignment [[true]]",
        "topics create t --assignment [",
        "topics create t --partitions 1 --replication-factor 1 --config x",
        "topics create t --partitions 1 --replication-factor 1 --config a=1 --config a=2",
        "configs set --cluster novalue",
        "configs set a=b",
        "configs describe --cluster --on 11",
        "topics delete",
        "storage info",
        "storage info --config a b",
        "replay digest --export e --at t5",
    ],
)
def test_what_a_verb_refuses_itself_is_exit_2_too(capsys: pytest.CaptureFixture[str], line: str) -> None:
    assert cli.main(line.split()) == 2
    assert "usage: metaquorum" in capsys.readouterr().err


def fails(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    """Let `topics list` end in an error."""

    def fail(**_: object) -> int:
        raise error

    monkeypatch.setattr(topics.NOUN.commands["list"], "callback", fail)


@pytest.mark.parametrize("words", [["-o", "json"], ["--json"], ["-o", "jsonl"], ["--output=json"]])
def test_errors_are_json_where_the_answer_would_be(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    fails(monkeypatch, OutcomeUnknown("no\nanswer", request_id="i9K4_o4GRTSeQ4ztWoqCXA"))
    assert cli.main(["topics", "list", *words]) == 5
    shown = capsys.readouterr()
    assert shown.out == "" and json.loads(shown.err) == {
        "error": "REQUEST_TIMED_OUT",
        "message": "no\nanswer",
        "exit_code": 5,
        "request_id": "i9K4_o4GRTSeQ4ztWoqCXA",
    }
    fails(monkeypatch, FileNotFoundError(2, "No such file", "f"))
    assert cli.main(["topics", "list", *words]) == 6
    assert json.loads(capsys.readouterr().err)["message"] == "f: No such file"
    assert cli.main(["topics", "lst", *words]) == 2
    assert json.loads(capsys.readouterr().err)["error"] == "USAGE"


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (TopicAlreadyExists("topic 't' exists"), 3, "metaquorum: TOPIC_ALREADY_EXISTS: topic 't' exists\n"),
        (NotController("nobody"), 4, "metaquorum: NOT_CONTROLLER: nobody\n"),
        (Unreachable("nobody"), 4, "metaquorum: NETWORK_EXCEPTION: nobody\n"),
        (InvalidSettings("f: k is missing"), 3, "metaquorum: INVALID_SETTINGS: f: k is missing\n"),
        (FileNotFoundError(2, "No such file", "f"), 6, "metaquorum: f: No such file\n"),
        (
            ModuleNotFoundError("no", name="pyspark"),
            6,
            "metaquorum: pyspark is not installed, which this needs: pip",
        ),
        (
            OutcomeUnknown("no answer", request_id="i9K4_o4GRTSeQ4ztWoqCXA"),
            5,
            "metaquorum: REQUEST_TIMED_OUT: no answer\nmetaquorum: its request id is i9K4_o4GRTSeQ4ztWoqCXA\n",
        ),
        (
            BaseExceptionGroup("g", [ValueError("x"), ExceptionGroup("h", [InvalidSettings("inner")])]),
            3,
            "metaquorum: INVALID_SETTINGS: inner\n",
        ),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_exit_codes_by_family(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: BaseException,
    code: int,
    said: str,
) -> None:
    fails(monkeypatch, error)
    assert cli.main(["topics", "list"]) == code
    captured = capsys.readouterr()
    assert captured.err.startswith(said)
    assert captured.out == ""


def test_a_bug_is_one_line_that_names_where_its_details_are(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    fails(monkeypatch, ZeroDivisionError("one\ntwo"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert cli.main(["topics", "list"]) == 6
    said = capsys.readouterr().err
    assert said.startswith("metaquorum: a bug: ZeroDivisionError: one two; please report it with ")
    assert said.count("\n") == 1
    assert "Traceback" in Path(said.split()[-1]).read_text()


@pytest.mark.parametrize(
    ("owner", "files", "said"),
    [
        ("ops-0.4.7", "ops/__init__.py,sha256=x,1\nops/main.py,,\n", "ops owns the module name 'ops' too"),
        ("quorum-1.0", "README,,\nquorum/__init__.py,,\n", "quorum owns the module name 'quorum' too"),
        ("metaquorum-0.1.0", "ops/__init__.py,,\nquorum/__init__.py,,\n", None),
        ("devops-1.0", "devops/ops/__init__.py,,\nops.py,,\n", None),
    ],
)
def test_another_owner_of_our_names_stops_it(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    owner: str,
    files: str,
    said: str | None,
) -> None:
    folder = tmp_path / f"{owner}.dist-info"
    folder.mkdir()
    (folder / "RECORD").write_text(files)
    monkeypatch.syspath_prepend(str(tmp_path))
    fails(monkeypatch, NotController("nobody"))
    assert cli.main(["topics", "list"]) == (4 if said is None else 6)
    assert (said or "nobody") in capsys.readouterr().err


def run(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_python_without_asserts_is_refused() -> None:
    ran = run("-O", "-m", "ops.cli", "topics", "list")
    assert ran.returncode == 6
    assert "-O" in ran.stderr
    assert "Traceback" not in ran.stderr


HEAVY = "'pyspark', 'pyarrow', 'duckdb', 'aiohttp', 'asyncio', 'quorum', 'broker_agent', 'snapshots'"


@pytest.mark.parametrize(
    ("line", "heavy"),
    [
        ("--help", f"{HEAVY}, 'msgspec', 'ssl', 'http.client', 'ops.admin'"),
        ("version --client", HEAVY),
        ("topics list --bootstrap http://127.0.0.1:9 --timeout 100ms", HEAVY),
        ("quorum add-voter --help", HEAVY),
    ],
)
def test_a_verb_starts_without_what_it_does_not_use(line: str, heavy: str) -> None:
    """Goal: each use of the command line is fast, whatever the other nouns import."""
    script = f"import sys; from ops import cli; cli.main({line.split()}); assert not {{{heavy}}} & set(sys.modules)"
    ran = run("-c", script)
    assert ran.returncode == 0, ran.stderr


@pytest.mark.slow
def test_no_noun_imports_what_only_its_verbs_use() -> None:
    """Goal: help, completion and usage errors take a quarter of a second at most. Method: one process asks for the help of
    all nouns, and imports nothing that starts slowly. Time itself would say how busy the machine is.
    """
    slow = "'pyspark', 'pyarrow', 'duckdb', 'aiohttp', 'asyncio', 'cryptography', 'immutables', 'pysyncobj'"
    script = f"""
import sys
from ops import cli
for noun in cli.NOUNS:
    assert cli.main([noun, "--help"]) == 0
    assert not {{{slow}}} & set(sys.modules), noun
"""
    ran = run("-c", script)
    assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize(
    ("words", "known"),
    [
        ("metaquorum topi", {"topics"}),
        ("metaquorum topics un", {"undelete"}),
        ("metaquorum topics create --rep", {"--replication-factor"}),
        ("metaquorum topics create --placement s", {"striped"}),
        ("metaquorum roll brokers --accept disk_", {"DISK_STALLED", "DISK_NEARLY_FULL"}),
        ("metaquorum log dump --type topict", {"TopicTombstone"}),
        ("metaquorum log tail --cause fen", {"FENCE_REQUESTED"}),
    ],
)
def test_a_shell_completes_nouns_verbs_options_and_choices(words: str, known: set[str]) -> None:
    told = {
        "_METAQUORUM_COMPLETE": "bash_complete",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split()) - 1),
    }
    ran = run("-m", "ops.cli", **told)
    assert {line.partition(",")[2] for line in ran.stdout.splitlines()} == known


def test_a_reader_that_leaves_is_no_error() -> None:
    script = "import sys; from ops import cli; sys.exit(cli.main(['--help']))"
    writer = subprocess.Popen(
        [sys.executable, "-c", script], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert writer.stdout is not None
    assert writer.stderr is not None
    writer.stdout.close()
    with writer.stderr as stderr:
        assert stderr.read() == b""
    assert writer.wait(60) == 0


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_stream_that_the_caller_closed_is_no_error(closed: str) -> None:
    command = f'"{sys.executable}" -m ops.cli context list {closed}'
    assert subprocess.run(["/bin/sh", "-c", command], cwd=ROOT, check=False).returncode == 0


def test_output_that_cannot_be_written_is_no_bug() -> None:
    """A full disk behind stdout is said in a line; behind stderr the exit code must do."""
    golden = ROOT / "tests/golden/metadata_log/00000000000000000000.log"
    asked = [sys.executable, "-m", "ops.cli", "log", "dump", str(golden)]
    with Path("/dev/full").open("w") as full:
        ran = subprocess.run(asked, cwd=ROOT, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
        assert ran.returncode == 6
        assert ran.stderr.startswith("metaquorum: the output cannot be written: No space left on device; ")
        assert ran.stderr.count("\n") == 1
        asked[-1] = str(ROOT / "pyproject.toml")
        assert subprocess.run(asked, cwd=ROOT, stdout=full, stderr=full, check=False).returncode == 3


def test_help_opens_with_examples(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--help"]) == 0
    shown = capsys.readouterr().out
    assert shown.index("examples:") < shown.index("positional arguments")


def test_a_fault_is_a_fault() -> None:
    assert issubclass(cli.WontRun, Fault)
