"""Journals of the directories here have small files: to make one of 16 MiB takes 60 ms of a processor."""

from functools import partial

import pytest

from quorum.raft import offline
from quorum.raft.journal.journal import Journal

FILE_BYTES = 1 << 16


@pytest.fixture(autouse=True)
def small_journals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Journal, "open", partial(Journal.open, file_bytes=FILE_BYTES))
    monkeypatch.setattr(offline, "JOURNAL_FILE_BYTES", FILE_BYTES)
