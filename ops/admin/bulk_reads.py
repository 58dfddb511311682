"""Edge: which controller is asked for much at once: a follower, so that the leader keeps its time for writes.

A linearizable read names the high watermark of the leader. A follower that has applied as much has everything that was
acknowledged before. Where no follower answers within FOLLOWER_WAIT_S, the leader is asked.
"""

import time
from contextlib import suppress
from typing import Any, Final, NamedTuple

from metadata_log.errors import Unavailable
from metadata_log.wire.answers import OfferedSnapshot, log_status, offered_snapshots
from ops.admin.client import ClusterClient, controllers_named
from ops.admin.exchange import Answer, Unreachable
from ops.admin.log_frames import high_watermark

POLL_S: Final = 0.05
FOLLOWER_WAIT_S: Final = 1.0
"""A follower applies a commit within some milliseconds."""


class Source(NamedTuple):
    """A controller to read from, with its status, and the offset below which it has all that was acknowledged."""

    url: str
    status: dict[str, Any]
    end_offset: int


def bulk_source(client: ClusterClient, *, from_leader: bool = False) -> Source:
    """Return the controller whose log begins lowest, a follower if several begin there.

    Raises:
        Unreachable: no controller applied all that was acknowledged in time.
    """
    # All records acknowledged before this linearizable read lie below its high watermark.
    end_offset = high_watermark(client.get("/v1/brokers"))
    began = time.monotonic()
    while True:
        found: list[Source] = []
        urls = list(client.bootstrap)
        for url in urls:
            with suppress(Unreachable):
                answer = client.ask_one(url, "/v1/quorum")
                if (
                    answer.ok and answer.came_by_a_broker
                ):  # it forwards no log; the controllers it knows are asked, too
                    urls += [
                        named for named in controllers_named(answer.json()).values() if named not in urls
                    ]
                elif answer.ok:
                    found.append(Source(url, _status(answer), end_offset))
        ready = [one for one in found if one.status["high_watermark"] >= end_offset]
        if from_leader:
            ready = [one for one in ready if _leads(one)]
        waited_s = time.monotonic() - began
        if ready and (from_leader or waited_s > FOLLOWER_WAIT_S or not all(map(_leads, ready))):
            return min(ready, key=lambda one: (one.status["log_start_offset"], _leads(one)))
        if waited_s > client.timeout_s:
            raise Unreachable(f"no controller with the log up to offset {end_offset} answered in time")
        time.sleep(POLL_S)


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
    """Return what the source answers; if it is busy or gone meanwhile, what the active controller answers.

    Raises:
        Rejected, Unavailable: as `ClusterClient.get`.
    """
    with suppress(Unreachable):
        answer = client.ask_one(
            source.url, f"{path}{'&' if '?' in path else '?'}consistency=stale", accept=accept
        )
        if answer.ok:
            return answer
        error = answer.error()
        if not isinstance(error, Unavailable):
            raise error
    return client.get(path, accept=accept)
