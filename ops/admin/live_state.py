"""Edge: the state of a running cluster, now or batch by batch: a snapshot, and the log after it, read from a follower.
Tests: tests/unit/ops/admin/test_dry_run.py.
"""

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from metadata_log.apply import apply
from metadata_log.errors import OffsetCompacted
from metadata_log.image.metadata_image import EMPTY, MetadataImage
from ops.admin.bulk_reads import Source, bulk_source, snapshots_in
from ops.admin.client import ClusterClient
from ops.admin.exchange import Answer
from ops.admin.explain import History, Step
from ops.admin.log_frames import cluster_frames, frames_in
from ops.admin.search import stale
from ops.when import OFFSET_MAX, AtOffset, When
from snapshots.snapshot_file import read_snapshot

if TYPE_CHECKING:
    from quorum.whatif.cluster import Options

OCTETS: Final = "application/octet-stream"
Ask = Callable[[str], Answer]


def live_image(client: ClusterClient) -> MetadataImage:
    """Return a state that has everything that was acknowledged before this call.

    Raises:
        Unreachable: no controller answers.
        DamagedFile: the snapshot is not sound.
    """
    source = bulk_source(client)
    ask = asking(client, source)
    image = snapshot_image(ask, newest=True)
    for before, batch in _steps(ask, image, source.end_offset):
        image = apply(before, batch).image
    return image


def newer_image(client: ClusterClient, image: MetadataImage) -> MetadataImage:
    """Return a state as `live_image` does, from one of before: only what was written since is read, if it is still there."""
    source = bulk_source(client)
    try:
        for before, batch in _steps(asking(client, source), image, source.end_offset):
            image = apply(before, batch).image
    except OffsetCompacted:
        return live_image(client)
    return image


def live_options(client: ClusterClient) -> "Options":
    """Return what the active controller's settings add to the state.

    Raises:
        Unavailable: no controller is active.
    """
    from quorum.whatif.cluster import Options  # it imports what decides, which a reader does not need

    return Options.of_settings(client.read("/v1/quorum/settings"))


def history(client: ClusterClient, *, since: When | None = None) -> History:
    """Return what the log holds, from `since` or a little before it; raises as `live_image`.

    It begins after the newest snapshot that is not beyond `since`, if there is one; without `since`, where the log does, or
    after the oldest snapshot if the log no longer begins at 0.
    """
    source = bulk_source(client)
    ask = asking(client, source)
    is_whole = source.status["log_start_offset"] == 0
    image = EMPTY if since is None else snapshot_image(ask, newest=True, until=_offset_of(ask, since))
    if not is_whole and image is EMPTY:
        image = snapshot_image(ask, newest=False)
    return History(image, _steps(ask, image, source.end_offset))


def _offset_of(ask: Ask, when: When) -> int:
    """Return an offset from which on everything is that was written at a time or later."""
    if isinstance(when, AtOffset):
        return when.offset
    frames = frames_in(ask(f"/v1/log?from={when.query}&max_bytes=1"))
    return next((frame.header.base_offset for frame in frames), OFFSET_MAX)


def asking(client: ClusterClient, source: Source) -> Ask:
    """Return what asks a controller for a path; it raises the error of an answer."""

    def ask(path: str) -> Answer:
        return client.ask_in_turn(source.urls, stale(path), accept=OCTETS)

    return ask


def snapshot_image(ask: Ask, *, newest: bool, since: int = 0, until: int = OFFSET_MAX) -> MetadataImage:
    """Return the state of the newest or the oldest snapshot between two offsets; the empty one if there is none."""
    items = [one for one in snapshots_in(ask("/v1/snapshots")) if since <= one.end_offset <= until]
    if not items:
        return EMPTY
    found = (max if newest else min)(items, key=lambda snapshot: snapshot.end_offset)
    with tempfile.TemporaryDirectory(prefix="metaquorum-") as directory:
        path = Path(directory) / f"{found.id}.snapshot"
        path.write_bytes(ask(f"/v1/metadata/snapshots/{found.id}").body)
        return read_snapshot(path)


def _steps(ask: Ask, image: MetadataImage, end_offset: int) -> Iterator[Step]:
    if image.end_offset < end_offset:
        for frame in cluster_frames(ask, first=str(image.end_offset), until=None):
            batch = frame.batch()
            if batch.base_offset >= image.end_offset:
                yield Step(image, batch)
                image = apply(image, batch).image
