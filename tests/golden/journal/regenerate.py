"""Writes the golden journal anew, beside this file: `.venv/bin/python -m tests.golden.journal.regenerate`.

Do so only for a new version of the format; a reader of the old one must stay.
"""

import random
from pathlib import Path

from quorum.raft.journal.journal import Journal
from quorum.raft.journal.os_disk import OsDisk
from tests.support.journals import compact_to

FILE_BYTES = 512
HERE = Path(__file__).parent


def write_golden(directory: Path) -> None:
    """Write a journal with each kind of record, three files long, its first file removed again."""
    journal = Journal.open(
        OsDisk(directory), random_bytes=random.Random(2026).randbytes, file_bytes=FILE_BYTES
    )

    def flush() -> None:
        batch = journal.take_batch()
        assert batch is not None
        journal.write(batch)
        journal.completed(batch)

    journal.add(b"\x01", 1, 0)
    journal.setCurrentTerm(1, None)
    flush()
    journal.mark_idle()
    journal.setCurrentTerm(2, 3)
    journal.add(b"\x01", 2, 2)
    flush()
    for index in range(3, 15):
        journal.add(b"\x10" + bytes([index]) * 40, index, 2)
        flush()
    journal.deleteEntriesFrom(11)
    journal.setCurrentTerm(4, "node-2")
    journal.add(b"\x01", 12, 4)
    flush()
    compact_to(journal, 10)
    flush()
    while not journal.is_prepared:
        journal.prepare()
    journal.mark_idle()
    journal.close()


if __name__ == "__main__":
    for path in HERE.glob("*.journal"):
        path.unlink()
    write_golden(HERE)
