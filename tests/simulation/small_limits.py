"""Limits drawn small for one life: what takes production 100,000 partitions or millions of requests happens within
seconds, by the same code.
"""

import random
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final
from unittest.mock import patch

import broker_agent.replicas
import metadata_log.image.results
import tests.support.sample_host
from metadata_log.limits import FETCH_SLICE_POLLS, RECORDS_PER_PART_MAX, REQUEST_RESULTS_MAX
from quorum.controller import Controller
from quorum.fetch.slices import Slices

RECORDS_PER_PART: Final = (3, 10, RECORDS_PER_PART_MAX)
"""Long changes (a fencing, a controlled shutdown, elections) are made in parts of so many records."""
REQUEST_RESULTS: Final = (2_000, REQUEST_RESULTS_MAX)
"""Answers kept for repeated requests; 2,000 are 40 s of a life's writes, longer than any client repeats."""

POLLS_PER_SLICE: Final = (1, 2, FETCH_SLICE_POLLS)
"""Polls are answered in slices of so many."""

REPLICAS_PER_SLICE: Final = (1, 5, broker_agent.replicas.VISITS_PER_SLICE)
"""A host is told of its replicas in slices of so many after a start."""
RECORDS_PER_FETCH: Final = (1, 3, tests.support.sample_host.RECORDS_PER_FETCH)
"""A follower of a sample host is sent so many records at once."""


@contextmanager
def small_limits(seed: int, *, results_kept: int | None = None) -> Iterator[None]:
    """Draw the limits of the life with this seed, and keep to them for a while; `results_kept`: not drawn here."""
    rng = random.Random(seed ^ 0x11317)
    per_part, results = rng.choice(RECORDS_PER_PART), rng.choice(REQUEST_RESULTS)
    results = results if results_kept is None else results_kept
    per_slice = rng.choice(POLLS_PER_SLICE)
    visits, per_fetch = rng.choice(REPLICAS_PER_SLICE), rng.choice(RECORDS_PER_FETCH)
    with ExitStack() as patched:
        patched.enter_context(patch.object(Controller, "records_per_part_max", per_part))
        patched.enter_context(patch.object(Slices, "pieces_max", per_slice))
        patched.enter_context(patch.object(metadata_log.image.results, "REQUEST_RESULTS_MAX", results))
        patched.enter_context(patch.object(broker_agent.replicas, "VISITS_PER_SLICE", visits))
        patched.enter_context(patch.object(tests.support.sample_host, "RECORDS_PER_FETCH", per_fetch))
        yield
