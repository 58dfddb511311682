"""Pure: mutants that nobody wrote: small changes of one place, found by walking the syntax of a file.

There are five kinds:
- *dropped statement*: a call, an assignment to an attribute or an item, a raise, a delete, a jump or an early return is
  replaced by `pass`.
- *inverted condition*: that of an if, a while, a conditional expression or a comprehension.
- *off-by-one*: `<` for `<=` and the like, or a bound of a slice or a range one higher.
- *swapped comparison*: the opposite one, or `or` for `and`.
- *changed constant*: a number (up to 10 one more, else half as much) or a truth value.

Left out is what decides nothing: log messages, annotations, strings, and arguments that say how a class is laid out.
An assignment to a local name is not dropped either: the name would be missing, which any test notices.
"""

import ast
import difflib
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

ROOMS: Final = ("quorum", "snapshots", "metadata_log", "broker_agent")
DROPPED: Final = "dropped statement"
INVERTED: Final = "inverted condition"
OFF_BY_ONE: Final = "off-by-one"
SWAPPED: Final = "swapped comparison"
CONSTANT: Final = "changed constant"
NEIGHBOUR: Final[Mapping[type[ast.cmpop], str]] = {ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">"}
OPPOSITE: Final[Mapping[type[ast.cmpop], str]] = {
    ast.Lt: ">",
    ast.Gt: "<",
    ast.LtE: ">=",
    ast.GtE: "<=",
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.In: "not in",
    ast.NotIn: "in",
    ast.Is: "is not",
    ast.IsNot: "is",
}
OPERATOR: Final = re.compile(rb"<=|>=|==|!=|<|>|not\s+in\b|is\s+not\b|in\b|is\b|and\b|or\b")
LAYOUT: Final = frozenset({"frozen", "slots", "kw_only", "eq", "gc", "weakref"})
"""Keywords of a class or its decorator that say how it is laid out."""
ADDED_MAX: Final = 10
"""Up to this number one is added; one more than 5,000 makes no difference that a test should notice."""


@dataclass(frozen=True, slots=True)
class Generated:
    """One change: the bytes from `start` to `end` of a file are replaced by `text`."""

    path: str
    line: int
    kind: str
    start: int
    end: int
    text: str
    function: int | None
    """The line where the innermost function begins, decorators included; None outside of functions."""
    name: str | None
    """What the statement assigns to, outside of functions."""

    @property
    def identity(self) -> str:
        return f"{self.path}:{self.start}:{self.end}:{self.text}"

    def applied_to(self, source: bytes) -> bytes:
        return source[: self.start] + self.text.encode() + source[self.end :]

    def diff(self, source: bytes) -> str:
        before, after = (text.decode().splitlines() for text in (source, self.applied_to(source)))
        lines = difflib.unified_diff(before, after, lineterm="", n=0)
        return "\n".join(line for line in list(lines)[3:])


def mutants_of(path: str, source: bytes) -> list[Generated]:
    """Return every mutant of a file, in the order of their places."""
    walk = _Walk(path, source)
    walk.visit(ast.parse(source, path))
    return sorted(walk.found, key=lambda mutant: (mutant.start, mutant.end, mutant.kind, mutant.text))


def sample(sources: Mapping[str, bytes], *, count: int, seed: int) -> list[Generated]:
    """Draw `count` mutants of all files, each as likely as any other; what does not compile is none."""
    everything = [mutant for path in sorted(sources) for mutant in mutants_of(path, sources[path])]
    random.Random(seed).shuffle(everything)
    drawn: list[Generated] = []
    for mutant in everything:
        if len(drawn) == count:
            break
        if _compiles(mutant, sources[mutant.path]):
            drawn.append(mutant)
    return drawn


def carried(mutant: Generated, before: bytes, now: bytes) -> Generated | None:
    """Return the same mutant of a later source of its file; None if its line, or what it replaces there, changed."""
    old, new = (source.decode().splitlines() for source in (before, now))
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    at = mutant.line - 1
    lines = [
        block.b + at - block.a for block in matcher.get_matching_blocks() if 0 <= at - block.a < block.size
    ]
    for other in mutants_of(mutant.path, now) if lines else ():
        if other.line - 1 == lines[0] and _likeness(other, now) == _likeness(mutant, before):
            return other
    return None


def _likeness(mutant: Generated, source: bytes) -> tuple[str, str, bytes, int]:
    column = mutant.start - (source.rfind(b"\n", 0, mutant.start) + 1)
    return mutant.kind, mutant.text, source[mutant.start : mutant.end], column


def _compiles(mutant: Generated, source: bytes) -> bool:
    try:
        compile(mutant.applied_to(source), mutant.path, "exec", dont_inherit=True)
    except SyntaxError:
        return False
    return True


class _Walk(ast.NodeVisitor):
    def __init__(self, path: str, source: bytes) -> None:
        self.found: list[Generated] = []
        self._path = path
        self._source = source
        self._begins = [0]
        for line in source.splitlines(keepends=True):
            self._begins.append(self._begins[-1] + len(line))
        self._function: int | None = None
        self._name: str | None = None

    # --- places

    def _place(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None and node.end_col_offset is not None
        return (
            self._begins[node.lineno - 1] + node.col_offset,
            self._begins[node.end_lineno - 1] + node.end_col_offset,
        )

    def _text(self, node: ast.expr) -> str:
        start, end = self._place(node)
        return self._source[start:end].decode()

    def _add(self, kind: str, start: int, end: int, text: str) -> None:
        line = self._source.count(b"\n", 0, start) + 1
        mutant = Generated(self._path, line, kind, start, end, text, self._function, self._name)
        self.found.append(mutant)

    def _instead(self, kind: str, node: ast.expr | ast.stmt, text: str) -> None:
        self._add(kind, *self._place(node), text)

    def _operator(self, kind: str, left: ast.expr, right: ast.expr, text: str) -> None:
        """Replace the operator between two operands; brackets may stand beside it."""
        start, end = self._place(left)[1], self._place(right)[0]
        operator = OPERATOR.search(self._source, start, end)
        if operator is not None:
            self._add(kind, operator.start(), operator.end(), text)

    # --- what is walked, and what is not

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        above = self._function
        self._function = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
        for default in (*node.args.defaults, *node.args.kw_defaults):
            if default is not None:
                self.visit(default)
        self._body(node.body)
        self._function = above

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self.visit_FunctionDef(node)

    def _body(self, body: Sequence[ast.stmt]) -> None:
        for statement in body:
            early = statement is not body[-1]
            if isinstance(statement, ast.Return) and early:
                self._instead(DROPPED, statement, "pass")
            self.visit(statement)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Leave out messages; Python 3.11 does not say where in a file their parts stand either."""

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if isinstance(node.target, ast.Attribute) and node.value is not None and self._function is not None:
            self._instead(DROPPED, node, "pass")
        if node.value is not None:
            self._named(node.target, node.value)

    def visit_Assign(self, node: ast.Assign) -> None:
        places = (ast.Attribute, ast.Subscript)
        if self._function is not None and all(isinstance(target, places) for target in node.targets):
            self._instead(DROPPED, node, "pass")
        self._named(node.targets[0], node.value)

    def _named(self, target: ast.expr, value: ast.expr) -> None:
        if self._function is None and isinstance(target, ast.Name):
            self._name = target.id
        self.visit(value)
        self._name = None

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        if self._function is not None:
            self._instead(DROPPED, node, "pass")
        self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Constant) or _logs(node.value):
            return
        if self._function is not None and isinstance(node.value, ast.Call | ast.Await):
            self._instead(DROPPED, node, "pass")
        self.generic_visit(node)

    def visit_Raise(self, node: ast.Raise) -> None:
        self._instead(DROPPED, node, "pass")
        self.generic_visit(node)

    def visit_Continue(self, node: ast.Continue) -> None:
        self._instead(DROPPED, node, "pass")

    def visit_Break(self, node: ast.Break) -> None:
        self._instead(DROPPED, node, "pass")

    def visit_Delete(self, node: ast.Delete) -> None:
        self._instead(DROPPED, node, "pass")

    def visit_If(self, node: ast.If) -> None:
        if isinstance(node.test, ast.Compare) and ast.unparse(node.test).startswith("__name__"):
            return
        self._condition(node.test)
        self.visit(node.test)
        for branch in (node.body, node.orelse):
            for statement in branch:
                if isinstance(statement, ast.Return):
                    self._instead(DROPPED, statement, "pass")
                self.visit(statement)

    def visit_While(self, node: ast.While) -> None:
        self._condition(node.test)
        self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._condition(node.test)
        self.generic_visit(node)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        for test in node.ifs:
            self._condition(test)
        self.generic_visit(node)

    def _condition(self, test: ast.expr) -> None:
        match test:
            case ast.Constant() | ast.Name(id="TYPE_CHECKING"):
                pass
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                self._instead(INVERTED, test, f"({self._text(operand)})")
            case ast.Compare(ops=[_]):
                pass  # the opposite comparison is the same mutant, or nearly so
            case _:
                self._instead(INVERTED, test, f"(not ({self._text(test)}))")

    def visit_Compare(self, node: ast.Compare) -> None:
        for (left, right), operator in zip(pairwise((node.left, *node.comparators)), node.ops, strict=True):
            if type(operator) in NEIGHBOUR:
                self._operator(OFF_BY_ONE, left, right, NEIGHBOUR[type(operator)])
            self._operator(SWAPPED, left, right, OPPOSITE[type(operator)])
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        for left, right in pairwise(node.values):
            self._operator(SWAPPED, left, right, "or" if isinstance(node.op, ast.And) else "and")
        self.generic_visit(node)

    def visit_Slice(self, node: ast.Slice) -> None:
        for bound in (node.lower, node.upper):
            if bound is not None and not isinstance(bound, ast.Constant):
                self._instead(OFF_BY_ONE, bound, f"({self._text(bound)}) + 1")
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        match node:
            case ast.Call(func=ast.Name(id="range"), args=[bound] | [_, bound]) if not isinstance(
                bound, ast.Constant | ast.Starred
            ):
                self._instead(OFF_BY_ONE, bound, f"({self._text(bound)}) + 1")
        self.generic_visit(node)

    def visit_keyword(self, node: ast.keyword) -> None:
        if node.arg not in LAYOUT or self._function is not None:
            self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        match node.value:
            case bool(value):
                self._instead(CONSTANT, node, str(not value))
            case int(value):
                self._instead(CONSTANT, node, str(value + 1 if value <= ADDED_MAX else value // 2))
            case float(value):
                self._instead(CONSTANT, node, str(value / 2))


def _logs(call: ast.expr) -> bool:
    match call:
        case ast.Call(func=ast.Attribute(value=ast.Name(id="log" | "_log" | "logger" | "logging"))):
            return True
    return False


def users_of(name: str, sources: Mapping[str, bytes]) -> Iterator[str]:
    """Yield path:line of each function that reads a name, alone or as an attribute."""
    for path, source in sources.items():
        if name.encode() not in source:
            continue
        for node in ast.walk(ast.parse(source, path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and any(
                (isinstance(used, ast.Name) and used.id == name)
                or (isinstance(used, ast.Attribute) and used.attr == name)
                for used in ast.walk(node)
            ):
                yield f"{path}:{min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])}"
