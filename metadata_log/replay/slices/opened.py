"""Edge: the log at a path or a URL, to be read in slices."""

import re
from pathlib import Path

from metadata_log.replay.controller_client import NOTHING_SHOWN, Shown, controllers
from metadata_log.replay.slices.controllers import ControllerLog
from metadata_log.replay.slices.exports import ExportLog
from metadata_log.replay.slices.segments import SegmentLog
from metadata_log.replay.slices.slicing import SlicedLog
from metadata_log.replay.tables import MANIFEST


def sliced_log(
    of: str, *, skips_damaged: bool = False, shown: Shown = NOTHING_SHOWN, asks_followers: bool = True
) -> SlicedLog:
    """Return the log of an export, a data directory, a folder of segments, or of controllers by URL; nothing is read yet."""
    if re.match(r"https?://", of):
        return ControllerLog(controllers(of, shown), asks_followers=asks_followers)
    path = Path(of.removeprefix("file://") if of.startswith("file:///") else of)
    if (path / MANIFEST).exists():
        return ExportLog(path)
    return SegmentLog(path, skips_damaged=skips_damaged)
