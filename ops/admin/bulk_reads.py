"""Edge: which controller is asked for much at once: a follower, so that the leader keeps its time for writes.

A linearizable read names the high watermark of the leader. A follower that has applied as much has everything that was
acknowledged before. Where no follower answers within FOLLOWER_WAIT_S, or none is known, the leader is asked.
"""

import time
from contextlib import suppress
from typing import Any, Final, NamedTuple

from metadata_log.errors import AuthenticationFailed, MetadataError, NotAuthorized, Unavailable
from metadata_log.node.attempts import HEDGE_S, Attempt, answers_in_time
from metadata_log.wire.answers import OfferedSnapshot, log_status, offered_snapshots
from ops.admin.client import ClusterClient, controllers_named
from ops.admin.exchange import Answer, Unreachable
from ops.admin.log_frames import high_watermark
from ops.admin.search import stale

POLL_S: Final = 0.05
FOLLOWER_WAIT_S: Final = 1.0
"""A follower applies a commit within some milliseconds."""


class Source(NamedTuple):
    """A controller to read from, with its status, and the offset below which it has all that was acknowledged.

    `others` have it, too: they are asked where this one becomes silent.
    """

    url: str
    status: dict[str, Any]
    end_offset: int
    others: tuple[str, ...] = ()

    @property
    def urls(self) -> tuple[str, ...]:
        return self.url, *self.others


def bulk_source(client: ClusterClient, *, from_leader: bool = False) -> Source:
    """Return the controller whose log begins lowest, a follower if several begin there.

    Raises:
        Unreachable: no controller applied all that was acknowledged in time.
        AuthenticationFailed, NotAuthorized: all that answer refuse this client.
    """
    # All records acknowledged before this linearizable read lie below its high watermark.
    end_offset = high_watermark(client.get("/v1/brokers", is_consistent=from_leader))
    began = time.monotonic()
    while True:
        ready = [one for one in _sources(client, end_offset) if one.status["high_watermark"] >= end_offset]
        if from_leader:
            ready = [one for one in ready if _leads(one)]
        waited_s = time.monotonic() - began
        all_are_ready = {*client.bootstrap} <= {one.url for one in ready}
        if ready and (
            from_leader or all_are_ready or waited_s > FOLLOWER_WAIT_S or not all(map(_leads, ready))
        ):
            ready.sort(key=lambda one: (one.status["log_start_offset"], _leads(one)))
            return ready[0]._replace(others=tuple(one.url for one in ready[1:]))
        if waited_s > client.timeout_s:
            raise Unreachable(f"no controller with the log up to offset {end_offset} answered in time")
        time.sleep(POLL_S)


def _sources(client: ClusterClient, end_offset: int) -> list[Source]:
    """Return the controllers that answer soon; those that were silent just now are not waited for."""
    found: list[Source] = []
    named: list[str] = []
    refused: list[MetadataError] = []

    def ask(attempt: Attempt) -> Answer | None:
        with suppress(Unreachable):
            return client.ask_one(attempt.url, "/v1/quorum")
        return None

    urls = [url for url in client.bootstrap if url not in client.silent] or list(client.bootstrap)
    while urls:
        answers = answers_in_time(
            urls, ask, least_s=HEDGE_S, most_s=client.timeout_s, is_sound=lambda answer: answer is not None
        )
        for answer in answers.values():
            if answer is None:
                continue
            if not answer.ok:
                with suppress(Unreachable):
                    refused += [
                        error
                        for error in (answer.error(),)
                        if isinstance(error, AuthenticationFailed | NotAuthorized)
                    ]
                continue
            if answer.came_by_a_broker:
                # It forwards no log; the controllers that it knows are asked, too.
                named += controllers_named(answer.json()).values()
                continue
            with suppress(Unreachable):
                found.append(Source(answer.url, _status(answer), end_offset))
        known = {*client.bootstrap, *client.silent, *(one.url for one in found), *urls}
        urls = [url for url in dict.fromkeys(named) if url not in known]
    if refused and not found:
        raise refused[0]
    return found


def _status(answer: Answer) -> dict[str, Any]:
    """Return an answer to /v1/quorum.

    Raises:
        Unreachable: it is something else.
    """
    status = answer.json()
    try:
        log_status(status)
    except ValueError as error:
        raise Unreachable(f"{answer.url} does not answer as a controller does: {error}") from error
    return dict(status)


def _leads(source: Source) -> bool:
    return bool(source.status.get("node_id") == source.status.get("leader_id", -1))


def snapshots_in(answer: Answer) -> list[OfferedSnapshot]:
    """Return an answer to /v1/snapshots.

    Raises:
        Unreachable: it is something else.
    """
    try:
        return offered_snapshots(answer.json())
    except ValueError as error:
        raise Unreachable(f"{answer.url} does not answer as a controller does: {error}") from error


def read_in_bulk(client: ClusterClient, source: Source, path: str, *, accept: str) -> Answer:
    """Return what the source answers; if it is silent, busy or gone meanwhile, what another controller answers.

    Raises:
        Rejected, Unavailable: as `ClusterClient.get`.
    """
    try:
        return client.ask_in_turn(source.urls, stale(path), accept=accept)
    except Unavailable:
        return client.get(path, accept=accept)
