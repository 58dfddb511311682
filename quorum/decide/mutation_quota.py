"""Pure: the quota of partitions that a client may create and delete in a second (controller_mutation_rate).

The controller that decides enforces it, for requests that brokers forward, too. A token bucket holds what a client may
still change: it fills at the quota's rate, up to what the rate gives in 11 s, and a change is accepted while it is not below
0. Source: KIP-599; Kafka's ControllerMutationQuotaManager, TokenBucket and the default ClientQuotaCallback.
"""

import hashlib
from collections.abc import Iterator
from typing import Final, NamedTuple

from metadata_log.errors import MutationQuotaExceeded
from metadata_log.image.quotas import DEFAULT, Entity, QuotasImage
from metadata_log.records.quotas import CLIENT_ID, USER
from metadata_log.wire.shapes import INT32_MAX

CONTROLLER_MUTATION_RATE: Final = "controller_mutation_rate"
BURST_S: Final = 11
"""Kafka's controller.quota.window.num windows of a second."""


class BucketKey(NamedTuple):
    """Whose changes count together; an empty user or client id: those of all."""

    user: str
    client_id: str


class Quota(NamedTuple):
    bucket: BucketKey
    rate: float
    """Partitions a second."""


CLIENT_ID_MAX: Final = 200
"""Characters of a client id by which changes are counted; those of a longer one are counted by its hash."""


def quota_of(quotas: QuotasImage, user: str, client_id: str) -> Quota | None:
    """Return the most specific quota of a client; None: there is none."""
    for entity, bucket in _candidates(user, client_id):
        values = quotas.get(entity)
        if values is not None and CONTROLLER_MUTATION_RATE in values:
            return Quota(bucket, values[CONTROLLER_MUTATION_RATE])
    return None


def _candidates(user: str, client_id: str) -> Iterator[tuple[Entity, BucketKey]]:
    """Yield the entities that a client belongs to, in Kafka's order, and which changes count together under each."""
    kept = client_id if len(client_id) <= CLIENT_ID_MAX else hashlib.sha256(client_id.encode()).hexdigest()
    pair = BucketKey(user, kept)
    for who in (user, DEFAULT):
        for client in (client_id, DEFAULT):
            yield ((CLIENT_ID, client), (USER, who)), pair
        yield ((USER, who),), BucketKey(user, "")
    for client in (client_id, DEFAULT):
        yield ((CLIENT_ID, client),), BucketKey("", kept)


class Mutations:
    """What one decision changes, counted against the bucket as it is before it."""

    def __init__(self, quota: Quota, tokens: float, *, is_strict: bool = True) -> None:
        """Not `is_strict`: everything is accepted and counted, as for clients of older versions of a request."""
        self.quota = quota
        self.taken = 0
        self._tokens, self._is_strict = tokens, is_strict

    def take(self, partitions: int) -> None:
        """Count partitions to create or delete.

        Raises:
            MutationQuotaExceeded: the bucket is below 0; names the time after which it is not.
        """
        left = self._tokens - self.taken
        if self._is_strict and left < 0:
            raise MutationQuotaExceeded(
                f"the quota {CONTROLLER_MUTATION_RATE} of {self.quota.rate:g} partitions a second is used up: "
                f"ask again in {throttle_ms(left, self.quota.rate)} ms"
            )
        self.taken += partitions


def throttle_ms(tokens: float, rate: float) -> int:
    """Return after how long a bucket is not below 0 any more, at most as long as an answer can say."""
    return round(min(max(-tokens / rate * 1000, 0.0), float(INT32_MAX)))
