"""Pure: the token buckets of clients' quotas of changes, of one reign; none is in the log, as Kafka's are not.

Tests: tests/unit/quorum/decide/test_mutation_quota.py.
"""

from typing import Final

from quorum.decide.mutation_quota import BURST_S, BucketKey, Mutations, Quota

BUCKETS_MAX: Final = 10_000
"""A client may have as many client ids as it likes. Beyond this number, the least recently used bucket is forgotten."""


class MutationBuckets:
    """The tokens of each bucket, and when they were counted, in order of last use."""

    def __init__(self) -> None:
        self._tokens: dict[BucketKey, tuple[float, int]] = {}

    def tokens(self, quota: Quota, *, now_ms: int) -> float:
        """Return what a bucket holds now; a new one is full."""
        burst = quota.rate * BURST_S
        known = self._tokens.get(quota.bucket)
        if known is None:
            return burst
        tokens, counted_ms = known
        return min(burst, tokens + quota.rate * max(0, now_ms - counted_ms) / 1000)

    def spend(self, mutations: Mutations, *, now_ms: int) -> None:
        """Take out what a decision changed, once its records are appended."""
        quota = mutations.quota
        left = self.tokens(quota, now_ms=now_ms) - mutations.taken
        self._tokens.pop(quota.bucket, None)
        self._tokens[quota.bucket] = (left, now_ms)
        while len(self._tokens) > BUCKETS_MAX:
            del self._tokens[next(iter(self._tokens))]
