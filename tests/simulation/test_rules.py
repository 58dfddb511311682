"""The rules that runs are held to: each is a class, says what it sees and what must hold, and is raised somewhere."""

import re
from importlib import import_module
from pathlib import Path

from tests.simulation.rules.rule import rules

HERE = Path(__file__).parent
SOURCES = [path for path in HERE.rglob("*.py") if not path.name.startswith(("test_", "__"))]


def test_each_rule_says_what_it_sees_and_what_must_hold_and_is_raised() -> None:
    used: set[str] = set()
    for path in SOURCES:
        import_module(".".join(("tests.simulation", *path.relative_to(HERE).with_suffix("").parts)))
        used |= {*re.findall(r"\.(\w+)", path.read_text(encoding="utf-8"))}
    known = list(rules())
    assert len({rule.name for rule in known}) == len(known) > 100
    assert [rule.name for rule in known if rule.name not in used] == []
    assert [rule.name for rule in known if len(rule.sees) < 20 or len(rule.holds) < 20] == []
