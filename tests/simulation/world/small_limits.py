"""Limits drawn small for one run: what takes production 100,000 partitions or millions of requests happens within
seconds, by the same code.
"""

import random
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final
from unittest.mock import patch

import broker_agent.replicas
import metadata_log.image.metadata_image
import metadata_log.image.results
import quorum.decide.deleted_topics
import quorum.decide.sweeps
import quorum.raft.proposals
import quorum.raft.replication
import tests.support.sample_host
from metadata_log import limits
from metadata_log.limits import (
    ELECTIONS_PER_SWEEP_MAX,
    FETCH_SLICE_POLLS,
    PART_AGAIN_MS,
    RAFT_APPEND_SHARED_BYTES,
    RAFT_ENTRY_SHARED_BYTES,
    RAFT_OBSERVER_IN_FLIGHT_BYTES,
    RECORDS_PER_PART_MAX,
    REQUEST_RESULTS_MAX,
)
from metadata_log.node.pace import Pieces
from quorum.controller.controller import Controller
from quorum.raft.messages import ENTRY_BYTES

RECORDS_PER_PART: Final = (3, 5, RECORDS_PER_PART_MAX)
"""Long changes (a fencing, a controlled shutdown, elections) are made in parts of so many records."""
PART_AGAIN: Final = (PART_AGAIN_MS, 20, 60)
"""Milliseconds between two parts of a fencing: longer ones let the rest of the cluster act in between."""
ELECTIONS_PER_SWEEP: Final = (2, 5, ELECTIONS_PER_SWEEP_MAX)
"""Elections in one batch of a sweep."""
REQUEST_RESULTS: Final = (2_000, REQUEST_RESULTS_MAX)
"""Answers kept for repeated requests; 2,000 are 40 s of a run's writes, longer than any client repeats."""

POLLS_PER_SLICE: Final = (1, 2, 1, FETCH_SLICE_POLLS)
"""Polls are answered in slices of so many."""

REPLICAS_PER_SLICE: Final = (1, 5, broker_agent.replicas.VISITS_PER_SLICE)
"""A host is told of its replicas in slices of so many after a start."""
LOG_TIME_STEPS: Final = (5, 5, 1)
"""The most that the time between two batches adds to the log's time is smaller by as much: a quiet log, and clocks that
leap, then matter within seconds."""
RAFT_APPEND_BYTES: Final = (4 * ENTRY_BYTES, 10 * ENTRY_BYTES, RAFT_APPEND_SHARED_BYTES)
"""One append_entries. Nearly all entries of a quorum alone count for little more than ENTRY_BYTES."""
RAFT_PROBE_BYTES: Final = (4 * ENTRY_BYTES, quorum.raft.replication.PROBE_BYTES)
"""The same, while a follower's position is unknown."""
RAFT_OBSERVER_BYTES: Final = (3 * ENTRY_BYTES, RAFT_OBSERVER_IN_FLIGHT_BYTES)
"""Entries in flight to one that is no voter."""
RAFT_SHARED_BYTES: Final = (24, RAFT_ENTRY_SHARED_BYTES)
"""Frames that share an entry; those of a quorum alone have 8 bytes each."""

RECORDS_PER_FETCH: Final = (1, 3, tests.support.sample_host.RECORDS_PER_FETCH)
"""A follower of a sample host is sent so many records at once."""


@contextmanager
def small_raft_limits(seed: int) -> Iterator[None]:
    """Draw the limits of a quorum alone, for the run with this seed, and keep to them for a while."""
    rng = random.Random(seed ^ 0x4AF7)
    replication, proposals = quorum.raft.replication, quorum.raft.proposals
    with ExitStack() as patched:
        for holder, name, bounds in (
            (replication, "RAFT_APPEND_SHARED_BYTES", RAFT_APPEND_BYTES),
            (replication, "PROBE_BYTES", RAFT_PROBE_BYTES),
            (replication, "RAFT_OBSERVER_IN_FLIGHT_BYTES", RAFT_OBSERVER_BYTES),
            (proposals, "RAFT_ENTRY_SHARED_BYTES", RAFT_SHARED_BYTES),
        ):
            patched.enter_context(patch.object(holder, name, rng.choice(bounds)))
        yield


@contextmanager
def small_limits(seed: int, *, results_kept: int | None = None) -> Iterator[None]:
    """Draw the limits of the run with this seed, and keep to them for a while; `results_kept`: not drawn here."""
    rng = random.Random(seed ^ 0x11317)
    per_part, results = rng.choice(RECORDS_PER_PART), rng.choice(REQUEST_RESULTS)
    results = results if results_kept is None else results_kept
    per_slice = rng.choice(POLLS_PER_SLICE)
    visits, per_fetch = rng.choice(REPLICAS_PER_SLICE), rng.choice(RECORDS_PER_FETCH)
    part_again, elections = rng.choice(PART_AGAIN), rng.choice(ELECTIONS_PER_SWEEP)
    steps = rng.choice(LOG_TIME_STEPS)
    with ExitStack() as patched:
        patched.enter_context(patch.object(limits, "PART_AGAIN_MS", part_again))
        patched.enter_context(patch.object(quorum.decide.sweeps, "ELECTIONS_PER_SWEEP_MAX", elections))
        patched.enter_context(patch.object(Controller, "records_per_part_max", per_part))
        patched.enter_context(patch.object(Pieces, "pieces_max", per_slice))
        patched.enter_context(patch.object(metadata_log.image.results, "REQUEST_RESULTS_MAX", results))
        patched.enter_context(patch.object(broker_agent.replicas, "VISITS_PER_SLICE", visits))
        patched.enter_context(patch.object(tests.support.sample_host, "RECORDS_PER_FETCH", per_fetch))
        for module in (metadata_log.image.metadata_image, quorum.decide.deleted_topics):
            step_ms = vars(module)["LOG_TIME_STEP_MS"] // steps
            patched.enter_context(patch.object(module, "LOG_TIME_STEP_MS", step_ms))
        yield
