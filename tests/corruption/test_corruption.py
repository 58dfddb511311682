"""Damage to any file at rest is detected by name, repaired, or harmless."""

import logging
from collections import Counter
from collections.abc import Callable

import pytest

from tests.corruption.campaign import KINDS, Damage, campaign
from tests.powercut.workloads import JournalWorkload


@pytest.mark.slow
def test_no_damage_goes_unnoticed() -> None:
    report = campaign(seed=3, flips=1_200)
    assert report.wrong == []
    met = Counter[str]()
    for (kind, _, _), count in report.counts.items():
        met[kind] += count
    assert set(met) == {kind for kind, _ in KINDS}
    assert report.total > 1_000


def test_what_each_damage_does() -> None:
    content = bytes(range(256)) * 4
    assert Damage("", "", "bit flip", 3, 0).to(content)[:5] == bytes((0, 1, 2, 2, 4))
    assert Damage("", "", "truncation", 3, 0).to(content) == bytes((0, 1, 2))
    assert Damage("", "", "zeroed sector", 512, 0).to(content) == content[:512] + bytes(512)
    assert Damage("", "", "misplaced sector", 0, 512).to(content) == content[512:] + content[512:]


def _silent(*_: object, **__: object) -> None:
    """In place of the refusal of damage."""


def _warning(*_: object, **__: object) -> None:
    logging.getLogger().warning("journal_damaged")


@pytest.mark.slow
@pytest.mark.parametrize("refuse", [_silent, _warning])
def test_a_journal_that_takes_any_damage_for_a_tear_is_found_out(
    refuse: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: the campaign itself bites. No warning excuses that entries, terms or votes which were synced are gone."""
    monkeypatch.setattr("quorum.raft.journal.recovery.refuse_damage", refuse)
    monkeypatch.setattr("tests.corruption.campaign.AT_REST", {"journal": JournalWorkload})
    report = campaign(seed=1, flips=200)
    assert len(report.wrong) > 30
