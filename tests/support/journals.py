"""Pure: the adapter's steps on a journal, for tests."""

from quorum.raft.journal.journal import Journal


def compact_to(journal: Journal, index: int) -> None:
    """Drop the entries that a snapshot up to `index` covers, but for the last two: the engine needs them."""
    if journal and index - 1 > journal[0][1]:
        journal.deleteEntriesTo(index - 1 - journal[0][1])
