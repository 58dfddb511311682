"""Edge: the rooms keep the house rules, and every rule bites what it must and nothing else."""

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.house import rules
from tests.house.rules import ROOMS, RULES, THIRD_PARTY, Module

ROOT = Path(__file__).resolve().parents[2]
MODULES = [Module.read(ROOT, file) for room in ROOMS for file in sorted((ROOT / room).rglob("*.py"))]

Rule = Callable[[Module], Iterator[str]]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_rooms_keep_the_rule(rule: Rule) -> None:
    """A112: one file alone imports the library of consensus; behind that door there is no choice of several."""
    broken = [f"{module.path}: {fault}" for module in MODULES for fault in sorted(rule(module))]
    assert broken == []


def test_every_room_was_looked_at() -> None:
    assert {module.path.split("/")[0] for module in MODULES} == set(ROOMS)


def test_every_folder_of_code_is_a_room_of_the_table() -> None:
    """Goal: the table in docs/design.md is the rule. Method: its rooms are the folders that have code, inner ones too."""
    folders = {module.path.rpartition("/")[0].replace("/", ".") for module in MODULES}
    assert folders | {"tests"} == set(rules.LISTED)


def test_the_table_says_what_it_said() -> None:
    """Goal: what is read from the table is what it means."""
    whole = {"metadata_log", "snapshots"}
    assert {room: set(allowed) for room, allowed in rules.ARROWS.items()} == {
        "metadata_log": {"metadata_log"},
        "metadata_log.replay": {"metadata_log.replay", *whole},
        "snapshots": whole,
        "quorum": {"quorum", *whole},
        "broker_agent": {"broker_agent", *whole},
        "ops": {*ROOMS, "metadata_log.replay"},
        "tests": {*ROOMS, "metadata_log.replay", "tests"},
    }
    rows = ("| `a/` | x | nobody |", "| `a/b/` | y | a, c |", "| `c/` | z | as `b/` |")
    page = "\n".join(("| room | what it is | imports |", "|---|---|---|", *rows, "", ""))
    assert rules.rooms_of(page) == {"a": {"a"}, "a.b": {"a.b", "a", "c"}, "c": {"a.b", "a", "c"}}


BITES: list[tuple[Rule, str, str]] = [
    (rules.imports_only_along_the_arrows, "metadata_log/apply.py", "import snapshots.store"),
    (rules.imports_only_along_the_arrows, "metadata_log/apply.py", "from metadata_log.replay import digest"),
    (rules.imports_only_along_the_arrows, "metadata_log/apply.py", "from metadata_log import replay"),
    (rules.imports_only_along_the_arrows, "metadata_log/apply.py", "from . import replay"),
    (rules.imports_only_along_the_arrows, "metadata_log/replay/source.py", "import quorum"),
    (rules.imports_only_along_the_arrows, "snapshots/store.py", "from metadata_log.replay import state"),
    (rules.imports_only_along_the_arrows, "snapshots/store.py", "def f():\n    import quorum.fetch.position"),
    (
        rules.imports_only_along_the_arrows,
        "quorum/controller/controller.py",
        "from broker_agent import session",
    ),
    (rules.imports_only_along_the_arrows, "quorum/raft/guard.py", "from ...ops import cli"),
    (rules.imports_only_along_the_arrows, "broker_agent/agent.py", "from quorum.node.config import Settings"),
    (rules.imports_only_along_the_arrows, "ops/local/cluster.py", "from tests.support import processes"),
    (rules.doors_and_decisions_stay_apart, "quorum/http/topics.py", "from quorum.kafka import topics"),
    (rules.doors_and_decisions_stay_apart, "quorum/http/topics.py", "from quorum import kafka"),
    (rules.doors_and_decisions_stay_apart, "quorum/kafka/topics.py", "import quorum.http.bodies"),
    (rules.doors_and_decisions_stay_apart, "quorum/http/topics.py", "from metadata_log.image import subject"),
    (
        rules.doors_and_decisions_stay_apart,
        "quorum/kafka/topics.py",
        "from metadata_log.image.topics import TopicsBuilder",
    ),
    (rules.doors_and_decisions_stay_apart, "quorum/http/state.py", "from metadata_log.apply import apply"),
    (rules.doors_and_decisions_stay_apart, "quorum/decide/topics.py", "from quorum.http import door"),
    (rules.doors_and_decisions_stay_apart, "quorum/decide/topics.py", "from ..kafka import topics"),
    (rules.doors_and_decisions_stay_apart, "quorum/decide/topics.py", "import json"),
    (
        rules.doors_and_decisions_stay_apart,
        "quorum/decide/topics.py",
        "def f():\n    from base64 import b64encode",
    ),
    (rules.third_party_only_where_listed, "quorum/controller/controller.py", "import pysyncobj"),
    (rules.third_party_only_where_listed, "quorum/raft/adapter.py", "import pysyncobj"),
    (rules.third_party_only_where_listed, "quorum/raft/guard.py", "from pysyncobj.node import Node"),
    (rules.third_party_only_where_listed, "ops/command_line/render.py", "import pyspark.sql"),
    (rules.third_party_only_where_listed, "snapshots/fold.py", "import pyarrow as pa"),
    (rules.third_party_only_where_listed, "quorum/decide/topics.py", "from aiohttp import web"),
    (rules.heading_says_pure_or_edge, "quorum/fetch/position.py", '"""What a fetch is told."""'),
    (rules.heading_says_pure_or_edge, "quorum/fetch/position.py", ""),
    (rules.heading_says_pure_or_edge, "quorum/__init__.py", "x = 1"),
    (rules.pure_reaches_nothing, "a.py", '"""Pure: a."""\nimport time'),
    (rules.pure_reaches_nothing, "a.py", '"""Pure: a."""\nfrom time import monotonic as now'),
    (rules.pure_reaches_nothing, "a.py", '"""Pure: a."""\nfrom datetime import datetime\nx = datetime.now()'),
    (rules.pure_reaches_nothing, "a.py", '"""Pure: a."""\nimport datetime as d\nx = d.datetime.now(d.UTC)'),
    (rules.pure_reaches_nothing, "a.py", '"""Pure: a."""\nwith open("f") as f: pass'),
    (rules.pure_reaches_nothing, "a.py", '"""Pure: a."""\ndef f(path): return path.read_bytes()'),
    (rules.pure_reaches_nothing, "a.py", '"""Pure: a."""\nasync def f():\n    import asyncio'),
    (rules.pure_reaches_nothing, "a.py", '"""Pure: a."""\nimport os\nx = os.environ["A"]'),
    (rules.pure_reaches_nothing, "a.py", '"""Pure: a."""\nfrom os import environ'),
    (rules.pure_reaches_nothing, "a.py", '"""Pure: a."""\nimport logging'),
    (rules.pure_reaches_nothing, "a.py", '"""Pure: a."""\nimport random\nx = random.choice([1])'),
    (rules.pure_reaches_nothing, "a.py", '"""Pure: a."""\nfrom random import shuffle'),
    (rules.pure_reaches_nothing, "a.py", '"""Pure: a."""\nimport random\nrng = random.Random()'),
    (rules.pure_reaches_nothing, "a.py", '"""Pure: a."""\nimport uuid\nx = uuid.uuid4()'),
    (rules.tasks_live_in_a_group, "a.py", "import asyncio\nasyncio.create_task(f())"),
    (rules.tasks_live_in_a_group, "a.py", "from asyncio import create_task\ncreate_task(f())"),
    (rules.tasks_live_in_a_group, "a.py", "self._loop.create_task(f())"),
    (rules.tasks_live_in_a_group, "a.py", "asyncio.get_running_loop().create_task(f())"),
    (rules.tasks_live_in_a_group, "a.py", "asyncio.ensure_future(f())"),
    (rules.one_pace, "quorum/http/topics.py", "async def f():\n    await asyncio.sleep(0)"),
    (rules.one_pace, "quorum/raft/adapter.py", "try:\n    next(work)\nexcept StopIteration: pass"),
    (rules.one_pace, "quorum/http/door.py", "await self.controller.turns.wait_for_turn()"),
    (rules.one_pace, "quorum/fetch/service.py", "self._controller.turns.begin_round()"),
    (rules.node_names_no_route, "metadata_log/node/identity/access.py", 'OPEN = ("GET", "/healthz")'),
    (rules.node_names_no_route, "metadata_log/node/http/routes.py", 'x = {("GET", "/v1/topics"): 1}'),
    (rules.is_read_in_one_sitting, "a.py", "x = 1\n" * 601),
    (rules.is_read_in_one_sitting, "a.py", "class A:\n" + "    def f(self): ...\n" * 31),
    (rules.is_read_in_one_sitting, "a.py", "def f():\n" + "    x = 1\n" * 60),
    (rules.catches_by_name, "quorum/node/server.py", "try: pass\nexcept Exception: pass"),
    (rules.catches_by_name, "quorum/node/server.py", "try: pass\nexcept (OSError, Exception) as e: raise"),
    (rules.catches_by_name, "quorum/node/server.py", "try: pass\nexcept: pass"),
    (rules.catches_by_name, "quorum/node/server.py", "try: pass\nexcept BaseException: log()"),
    (rules.engine_words_stay_inside, "quorum/controller/controller.py", "term = 1"),
    (rules.engine_words_stay_inside, "quorum/controller/controller.py", "def f(current_term): pass"),
    (rules.engine_words_stay_inside, "quorum/controller/controller.py", "x.raft_term"),
    (rules.engine_words_stay_inside, "quorum/controller/controller.py", "f(log_index=1)"),
    (rules.engine_words_stay_inside, "ops/cli.py", "LAST_LOG_INDEX = 1"),
    (rules.nothing_unpickles, "quorum/raft/adapter.py", "import pickle"),
    (rules.nothing_unpickles, "quorum/raft/adapter.py", "from pysyncobj.pickle import loads"),
    (rules.nothing_unpickles, "ops/cli.py", "def f():\n    from pickle import loads"),
    (rules.raises_where_it_matters, "quorum/raft/guard.py", "assert True"),
    (rules.raises_where_it_matters, "metadata_log/apply.py", "def f():\n    assert 1 == 1"),
    (
        rules.records_declare_their_secrets,
        "metadata_log/records/x.py",
        "class ARecord(NamedTuple):\n    a: int",
    ),
    (
        rules.records_declare_their_secrets,
        "metadata_log/records/x.py",
        "@record(type_id=1)\nclass ARecord(NamedTuple):\n    a: int",
    ),
]

PASSES: list[tuple[Rule, str, str]] = [
    (
        rules.is_read_in_one_sitting,
        "a.py",
        'def f():\n    """A.' + "\n" * 9 + '    """\n' + "    x = 1\n" * 60,
    ),
    (
        rules.imports_only_along_the_arrows,
        "metadata_log/replay/digest.py",
        "from snapshots import fold\nfrom . import state",
    ),
    (rules.imports_only_along_the_arrows, "ops/verbs/replay.py", "from metadata_log.replay import digest"),
    (
        rules.imports_only_along_the_arrows,
        "quorum/controller/controller.py",
        "import metadata_log.apply\nfrom quorum.raft import raft_log",
    ),
    (
        rules.doors_and_decisions_stay_apart,
        "quorum/http/topics.py",
        "import json\nfrom metadata_log.image.views import describe_topic\nfrom quorum.http.door import Door",
    ),
    (
        rules.doors_and_decisions_stay_apart,
        "quorum/decide/topics.py",
        "from metadata_log.image.metadata_image import MetadataImage\nimport jsonschema",
    ),
    (
        rules.third_party_only_where_listed,
        "quorum/raft/engine.py",
        "import pysyncobj\nimport collections.abc",
    ),
    (rules.third_party_only_where_listed, "metadata_log/image/topics.py", "from immutables import Map"),
    (rules.heading_says_pure_or_edge, "quorum/__init__.py", ""),
    (rules.heading_says_pure_or_edge, "quorum/fetch/position.py", '"""Pure: what a fetch is told."""'),
    (rules.pure_reaches_nothing, "a.py", '"""Edge: a."""\nimport time\nopen("f")'),
    (
        rules.pure_reaches_nothing,
        "a.py",
        '"""Pure: a."""\nimport random\ndef f(rng: random.Random): return rng.choice([1])',
    ),
    (rules.pure_reaches_nothing, "a.py", '"""Pure: a."""\nimport random\nrng = random.Random(7)'),
    (
        rules.pure_reaches_nothing,
        "a.py",
        '"""Pure: a."""\ndef f(journal, time_ms): return journal.open, time_ms',
    ),
    (rules.tasks_live_in_a_group, "a.py", "self._task_group.create_task(f())\ntg.create_task(g())"),
    (rules.one_pace, "metadata_log/node/pace.py", "async def f():\n    await asyncio.sleep(0)"),
    (rules.one_pace, "quorum/controller/controller.py", "await self.turns.wait_for_turn()"),
    (rules.node_names_no_route, "quorum/http/health.py", 'x = "/healthz"'),
    (rules.node_names_no_route, "metadata_log/node/identity/rights.py", '"""Shown at /healthz."""'),
    (rules.catches_by_name, "ops/cli.py", "try: pass\nexcept Exception: pass"),
    (
        rules.catches_by_name,
        "quorum/node/server.py",
        "try: pass\nexcept BaseException:\n    undo()\n    raise",
    ),
    (rules.catches_by_name, "quorum/node/server.py", "try: pass\nexcept (OSError, ValueError): pass"),
    (rules.engine_words_stay_inside, "quorum/raft/guard.py", "term = log_index = 1"),
    (rules.engine_words_stay_inside, "quorum/node/server.py", "signal.SIGTERM, determine, terminal"),
    (rules.raises_where_it_matters, "quorum/controller/controller.py", "assert True"),
    (
        rules.records_declare_their_secrets,
        "metadata_log/records/x.py",
        "@record(type_id=1, secret_fields=NO_SECRETS)\nclass ARecord(NamedTuple):\n    a: int",
    ),
]


@pytest.mark.parametrize(("rule", "path", "source"), BITES)
def test_the_rule_bites(rule: Rule, path: str, source: str) -> None:
    assert list(rule(Module(path, source)))


@pytest.mark.parametrize(("rule", "path", "source"), PASSES)
def test_the_rule_lets_good_code_pass(rule: Rule, path: str, source: str) -> None:
    assert list(rule(Module(path, source))) == []


OF_FILES = (
    "backup.py",
    "config.py",
    "import_zookeeper.py",
    "log.py",
    "log_dump.py",
    "process.py",
    "snapshot.py",
    "storage.py",
    "whatif.py",
)
"""Verbs that are given a file or a directory, and say whether its node runs."""
READERS = (
    *("metadata_log.log", "metadata_log.node.disk.data_directory", "metadata_log.node.disk.durable_files"),
    *("quorum.log", "quorum.raft", "snapshots"),
)


def test_no_verb_that_administers_a_cluster_reads_the_files_of_a_node() -> None:
    """A108: it asks a controller, and so imports nothing that reads logs, snapshots, journals and directories."""
    verbs = [module for module in MODULES if module.path.startswith("ops/verbs/")]
    administer = [module for module in verbs if module.path.rpartition("/")[2] not in OF_FILES]
    assert len(administer) > 10 and len(verbs) - len(administer) == len(OF_FILES)
    assert [
        f"{module.path}: {name}"
        for module in administer
        for _, name in module.imports
        if any(f"{name}.".startswith(f"{reader}.") for reader in READERS)
    ] == []


def test_every_rule_is_shown_to_bite() -> None:
    assert {rule for rule, _, _ in BITES} == set(RULES)


def test_the_engine_and_spark_have_one_importer_each() -> None:
    """Goal: the table itself does not drift from the two promises that matter most."""
    assert [glob for glob, names in THIRD_PARTY.items() if "pysyncobj" in names] == ["quorum/raft/engine.py"]
    for name in ("pyspark", "pyarrow", "duckdb"):
        importers = {glob for glob, names in THIRD_PARTY.items() if name in names}
        # What Spark itself costs is measured with a source of its own.
        assert importers - {"ops/bench/spark_source.py"} == {"metadata_log/replay/*.py"}


@pytest.mark.parametrize("path", ["library.py", "lakes.py", "frames.py", "glance.py"])
def test_what_an_analyst_calls_has_types(path: str) -> None:
    """Goal: a notebook under mypy --strict knows what it gets. Method: no signature, and no attribute, names Any."""
    module = next(module for module in MODULES if module.path == f"metadata_log/replay/{path}")
    named = [
        ast.unparse(annotation)
        for node in module.nodes
        for annotation in (
            [node.annotation]
            if isinstance(node, ast.AnnAssign | ast.arg)
            else [node.returns]
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            else []
        )
        if annotation is not None
    ]
    assert named and [text for text in named if re.search(r"\bAny\b", text)] == []


def test_connections_between_nodes_are_kept_in_one_file() -> None:
    """Goal: none outlives its certificate. That of a forwarded request is closed after it; benchmarks keep none for long."""
    makers = {module.path for module in MODULES if "TCPConnector" in module.source}
    assert {path for path in makers if not path.startswith("ops/bench/")} == {
        "broker_agent/forwarding.py",
        "metadata_log/node/http/kept_connections.py",
    }
