"""Pure: the adapter's steps on a journal, and what a restart finds there, for tests."""

from quorum.raft.journal.journal import Journal
from quorum.raft.messages import Entry

Standing = tuple[list[Entry], int, object]
"""Entries, the term and the vote in it."""


def compact_to(journal: Journal, index: int) -> None:
    """Drop the entries that a snapshot up to `index` covers, but for the last two: the engine needs them."""
    if journal and index - 1 > journal[0][1]:
        journal.deleteEntriesTo(index - 1 - journal[0][1])


def standing_of(journal: Journal) -> Standing:
    """Return what a restart must find; the first entry's command may be blank, as a snapshot covers it."""
    entries = [(b"", *entry[1:]) if position == 0 else entry for position, entry in enumerate(journal)]
    return entries, journal.getCurrentTerm(), journal.getVotedForNodeId()


def brief(standing: Standing) -> str:
    entries, term, vote = standing
    ends = f"{entries[0][1]}..{entries[-1][1]}" if entries else "nothing"
    return f"entries {ends} of term {term} with vote {vote}"
