"""Edge: what an operator does not agree to is not done: no verb goes on after any answer but yes."""

import ast
import json
from pathlib import Path

import pytest

import ops.verbs
from ops import cli
from ops.admin import live_state
from tests.support.placements import a_cluster
from tests.support.terminal import answering
from tests.support.told_node import Reply, node

VERBS = Path(ops.verbs.__path__[0])


@pytest.mark.parametrize("answer", ["n", "", "no"])
@pytest.mark.parametrize(
    "words",
    [
        "brokers drain 1",
        "brokers drain 1 --leaders-only",
        "partitions rebalance",
        "roll all --restart false",
        "apply {file}",
    ],
)
def test_a_no_sends_and_restarts_nothing(
    words: str, answer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "cluster.json"
    file.write_text(json.dumps({"cluster": {"min.insync.replicas": 2}}))
    image = a_cluster([None] * 3, "t on=1,2/1,2/1,2").image
    monkeypatch.setattr(live_state, "live_image", lambda _: image)
    screen = answering(monkeypatch, answer)
    with node() as told:
        told.answer = lambda _: Reply(body=b"{}")
        code = cli.main([*words.format(file=file).split(), "--bootstrap", told.url])
        assert (code, told.seen) == (3, [])
    assert "Go on? [y/N]" in screen.getvalue() and "nothing was written" in screen.getvalue()


def test_every_verb_looks_at_the_answer() -> None:
    """A call that stands alone drops the answer."""

    def drops(statement: ast.AST) -> bool:
        match statement:
            case ast.Expr(value=ast.Call(func=ast.Name(id="ask_first"))):
                return True
        return False

    for path in VERBS.glob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        assert not [ast.unparse(one) for one in ast.walk(tree) if drops(one)], path.name
