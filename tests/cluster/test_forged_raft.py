"""Forged Raft messages, and tampered links, neither end a controller nor move a term, and cost no acknowledged write."""

import asyncio
from pathlib import Path

import pytest

from tests.hostile_raft.run import run
from tests.hostile_raft.terms import run_terms

pytestmark = pytest.mark.slow


def test_a_live_quorum_outlives_forged_messages(tmp_path: Path) -> None:
    verdict = asyncio.run(run(tmp_path, messages=20_000, seed=5))
    assert verdict.violations == []
    assert verdict.acknowledged > 0
    assert verdict.tampered


def test_forged_terms_spoil_no_founding_and_lock_no_voter_out(tmp_path: Path) -> None:
    assert asyncio.run(run_terms(tmp_path, seed=5)) == []
