"""Documents, docstrings and comments of production code have no words that a stranger has to decode."""

import pytest

from tests.house.prose import WORDS, found, in_document, in_source
from tests.house.rules import Module

BITES = [
    "Whoever holds the lock may write.",
    "a stranger's term deposes nobody",
    "Nobody leads the partition.",
    "the state is made anew",
    "Who is elected applies its log first.",
    "# Who reads slowly would hold all results.",
    "an election: Who has nothing in its log is a stranger.",
    "Whose ISR is smaller refuses writes: it is told of at once.",
    "a leader that was heard of",
    "the next controller goes on with it",
    "Go on with the next batch.",
    "The reader waits for so long.",
    "a snapshot that was taken so long ago",
    "so many times as many entries",
    "it took so long that it was given up",
    "The default stands here.",
    "A row stands for a record.",
    "what befalls a broker",
    "the log behind a snapshot",
    "The next part goes on behind it.",
]
PASSES = [
    "NOBODY if it shows no identity.",
    "Who led a partition, and why did that change?",
    "## Who may do what",
    "an operator who restarts one controller after the other",
    "a node that must stand for election",
    "It lets a candidate stand for election.",
    "as long as elections are clean",
    "so many partitions are counted",
    "the work goes on",
    "standby applies what is committed",
    "the setting whose value is a secret",
    "how long a broker was silent",
    "a follower that is behind, and a broker behind a proxy",
]


@pytest.mark.parametrize("text", BITES)
def test_a_turn_that_has_to_be_decoded_is_found(text: str) -> None:
    assert WORDS.search(text)


@pytest.mark.parametrize("text", PASSES)
def test_a_plain_sentence_is_not(text: str) -> None:
    assert not WORDS.search(text)


def test_only_prose_is_looked_at() -> None:
    source = '''
        """Nobody leads it."""
        x = "nobody leads it"  # whoever leads
        def f():
            """Return it anew.

            Nobody waits.
            """
            return "nobody", "anew"
        '''
    lines = [line.removeprefix("        ") for line in source.strip("\n").splitlines()]
    assert [number for number, _ in in_source(Module("a.py", "\n".join(lines)))] == [2, 1, 4, 6]
    page = "| `a/` | the language | nobody |\n\nNobody imports it.\n"
    assert [number for number, _ in in_document(page)] == [3]


def test_there_is_none() -> None:
    assert [f"{one.path}:{one.line}: {one.text}" for one in found()] == []
