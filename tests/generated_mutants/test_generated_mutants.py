"""The generator makes the mutants it speaks of, the same ones each time, and a trial tells one that is noticed."""

from pathlib import Path

import pytest

from tests.generated_mutants.coverage import Covered
from tests.generated_mutants.mutations import ROOMS, Generated, carried, mutants_of, sample
from tests.generated_mutants.trial import Choice, Workshop

ROOT = Path(__file__).resolve().parents[2]


def made(source: str) -> set[tuple[str, str]]:
    """Return kind and whole text of each mutant of a function's body."""
    head = "def f(self, a, b):\n    "
    whole = (head + source).encode()
    return {
        (mutant.kind, mutant.applied_to(whole).decode().removeprefix(head))
        for mutant in mutants_of("a.py", whole)
    }


@pytest.mark.parametrize(
    ("source", "mutants"),
    [
        ("a.send(b)", {("dropped statement", "pass")}),
        ("await a.send(b)", {("dropped statement", "pass")}),
        ("self.a = b", {("dropped statement", "pass")}),
        ("a[b] += a", {("dropped statement", "pass")}),
        ("raise a", {("dropped statement", "pass")}),
        (
            "if a: return b\n    return a",
            {
                ("inverted condition", "if (not (a)): return b\n    return a"),
                ("dropped statement", "if a: pass\n    return a"),
            },
        ),
        ("return a if not b else b", {("inverted condition", "return a if (b) else b")}),
        ("return [x for x in a if x]", {("inverted condition", "return [x for x in a if (not (x))]")}),
        (
            "return (a)  < b",
            {("off-by-one", "return (a)  <= b"), ("swapped comparison", "return (a)  > b")},
        ),
        ("return a is not b", {("swapped comparison", "return a is b")}),
        ("return a in b", {("swapped comparison", "return a not in b")}),
        ("return a and b", {("swapped comparison", "return a or b")}),
        ("return a[b:]", {("off-by-one", "return a[(b) + 1:]")}),
        ("return range(a)", {("off-by-one", "return range((a) + 1)")}),
        ("return 10", {("changed constant", "return 11")}),
        ("return 5_000", {("changed constant", "return 2500")}),
        ("return True", {("changed constant", "return False")}),
        ('log.info("a", extra={"a": 1})', set()),
        ('"""A docstring."""', set()),
        ("b = a", set()),
        ('return f"{a < b}"', set()),
    ],
)
def test_what_is_made_of_a_statement(source: str, mutants: set[tuple[str, str]]) -> None:
    assert made(source) == mutants


def test_a_place_is_found_behind_letters_of_several_bytes() -> None:
    source = "def f(a):\n    'é'; return 'é', a + 1\n".encode()
    (mutant,) = mutants_of("a.py", source)
    assert mutant.applied_to(source).decode().endswith("return 'é', a + 2\n")


@pytest.mark.slow
def test_a_sample_is_the_same_each_time_and_compiles() -> None:
    sources = {
        file.relative_to(ROOT).as_posix(): file.read_bytes() for file in (ROOT / "quorum/decide").glob("*.py")
    }
    drawn = sample(sources, count=50, seed=3)
    assert drawn == sample(sources, count=50, seed=3) != sample(sources, count=50, seed=4)
    assert len({mutant.identity for mutant in drawn}) == 50
    for mutant in drawn:
        compile(mutant.applied_to(sources[mutant.path]), mutant.path, "exec")


def test_a_mutant_is_carried_to_where_its_line_stands_now() -> None:
    before = b"def f(a):\n    return a + 1\n\n\ndef g(a):\n    return a + 1\n"
    after = b"def g(a):\n    return a + 1\n"
    of_f, of_g = (mutant for mutant in mutants_of("a.py", before))
    (now,) = mutants_of("a.py", after)
    assert carried(of_g, before, before) == of_g
    assert carried(of_g, before, after) == now != of_g
    assert carried(of_f, before, after) is None
    assert carried(of_g, before, after.replace(b"1", b"2")) is None
    assert carried(of_g, before, b"") is None


def test_who_calls_the_changed_function_is_asked_the_quickest_first() -> None:
    sources = {"quorum/a.py": b"LIMIT = 5\ndef f():\n    return g(1)\ndef g(n):\n    return n < LIMIT\n"}
    covered = [
        Covered("tests/test_b.py::slow", 4.0, passed=True, functions=frozenset({"quorum/a.py:4"})),
        Covered("tests/test_b.py::quick", 0.5, passed=True, functions=frozenset({"quorum/a.py:4"})),
        Covered("tests/test_a.py::own", 3.0, passed=True, functions=frozenset({"quorum/a.py:4"})),
        Covered("tests/test_b.py::fails", 0.0, passed=False, functions=frozenset({"quorum/a.py:4"})),
        Covered("tests/test_b.py::other", 0.0, passed=True, functions=frozenset({"quorum/a.py:2"})),
    ]
    choice = Choice(covered, sources)
    of_g = ["tests/test_b.py::quick", "tests/test_a.py::own", "tests/test_b.py::slow"]
    for mutant in mutants_of("quorum/a.py", sources["quorum/a.py"]):
        expected = ["tests/test_b.py::other"] if mutant.line == 3 else of_g
        assert choice.tests(mutant) == expected, mutant


@pytest.mark.slow
def test_a_trial_tells_what_is_noticed_from_what_is_not(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "tests/generated_mutants").mkdir(parents=True)
    for name in ("coverage", "mutations", "trial"):
        file = f"tests/generated_mutants/{name}.py"
        (root / file).write_bytes((ROOT / file).read_bytes())
    (root / ROOMS[0]).mkdir()
    source = b"def f(n):\n    return n < 5\n"
    (root / "quorum/a.py").write_bytes(source)
    test = "from quorum.a import f\ndef test_f():\n    assert f(4) and not f(6)\n"
    (root / "tests/test_a.py").write_text(test)
    workshop = Workshop(root, tmp_path / "copy")

    def caught_by(mutant: Generated) -> str | None:
        return workshop.test(mutant, ["tests/test_a.py::test_f"], most_s=30).caught_by

    swapped, neighbour = (
        next(mutant for mutant in mutants_of("quorum/a.py", source) if mutant.kind == kind)
        for kind in ("swapped comparison", "off-by-one")
    )
    assert caught_by(swapped) == "FAILED tests/test_a.py::test_f"
    assert caught_by(neighbour) is None
    over = workshop.test(neighbour, ["tests/test_a.py::test_f"], most_s=0)
    assert (over.caught_by, over.complete) == (None, False)
    assert (tmp_path / "copy/quorum/a.py").read_bytes() == source == (root / "quorum/a.py").read_bytes()
