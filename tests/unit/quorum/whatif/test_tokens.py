"""Edge: scripts on a cluster that has delegation tokens: its time goes on, and without a secret key none is touched."""

from dataclasses import replace
from typing import Any

import pytest

from metadata_log.image.metadata_image import MetadataImage
from metadata_log.records.tokens import DelegationTokenRecord
from quorum.whatif.cluster import Cluster, Options, founded
from quorum.whatif.script import Script

HOUR_MS = 3_600_000
WITH_KEY = {"op": "Options", "delegation_token_secret_key": "secret"}
RENEWAL = {"op": "RenewDelegationToken", "principal": "User:bob"}


def with_tokens() -> MetadataImage:
    """Return a state whose first token ends in an hour, and whose second in two."""
    cluster = Cluster(Options())
    now_ms = cluster.image.last_time_ms
    cluster.write(
        [
            DelegationTokenRecord(
                token_id, "User:ann", "User:ann", ("User:bob",), now_ms, now_ms + 9 * HOUR_MS, ends_ms
            )
            for token_id, ends_ms in (("first", now_ms + HOUR_MS), ("second", now_ms + 2 * HOUR_MS))
        ]
    )
    return cluster.image


def answers(image: MetadataImage, *lines: dict[str, Any]) -> list[dict[str, Any]]:
    run = Script(image)
    return [run.answer(line) for line in lines]


def test_tokens_of_the_cluster_are_named_renewed_and_swept() -> None:
    image = with_tokens()
    renewal = {**RENEWAL, "token": "token#2", "renew_period_ms": 5 * HOUR_MS}
    _, renewed, swept = answers(image, WITH_KEY, renewal, {"op": "AdvanceTime", "ms": 3 * HOUR_MS})
    assert renewed["response"] == {"expiry_timestamp_ms": image.last_time_ms + 5 * HOUR_MS}
    assert renewed["batches"][0][0]["token_id"] == "token#2"
    gone = {"type": "REMOVE_DELEGATION_TOKEN_RECORD", "version": 0, "token_id": "token#1"}
    assert (swept["batches"], swept["times_ms"]) == ([[gone]], [2 * HOUR_MS])


def test_time_goes_on_from_that_of_the_state() -> None:
    image = with_tokens()
    later = replace(image, last_time_ms=image.last_time_ms + HOUR_MS + 1)
    for state, error in ((image, None), (later, "DELEGATION_TOKEN_EXPIRED")):
        _, answer = answers(state, WITH_KEY, {**RENEWAL, "token": "token#1"})
        assert (answer["error"] or {}).get("error") == error


@pytest.mark.parametrize("token", ["token#1", "token#9"])
def test_without_a_secret_key_there_are_no_tokens_and_none_is_swept(token: str) -> None:
    refused, after = answers(
        with_tokens(), {**RENEWAL, "token": token}, {"op": "AdvanceTime", "ms": 3 * HOUR_MS}
    )
    assert refused["error"]["error"] == "DELEGATION_TOKEN_AUTH_DISABLED"
    assert after["batches"] == []


def test_an_empty_cluster_begins_at_the_time_of_kafkas() -> None:
    assert founded(Options()).last_time_ms == 1_000_000_000
