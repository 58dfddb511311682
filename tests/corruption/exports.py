"""Edge: an export at rest and its readers: the plain engines, and the next run, which continues it.

Spark reads what `open_export` has checked, as DuckDB does, and rests on the same files.
"""

import random
import tempfile
from pathlib import Path

from metadata_log.digest import digest
from metadata_log.replay.digest import state_digest
from metadata_log.replay.export import export_log
from tests.powercut.recorder import Recorder, put_tree, tree_of
from tests.powercut.workloads import Facts, NotKept
from tests.support.exports import frames_of, image_at
from tests.support.histories import CLUSTER_ID, random_history

STEPS = 45
EXPORTED = 30


class ExportWorkload:
    """An export; `goes_on`: another run adds to it before it is read."""

    def __init__(self, name: str, *, goes_on: bool) -> None:
        self.name = name
        self._goes_on = goes_on

    def run(self, recorder: Recorder, rng: random.Random) -> None:
        self._history = random_history(rng, STEPS)
        with tempfile.TemporaryDirectory() as directory:
            # Its Parquet files are not written by functions that a recorder could note.
            scratch = Path(directory)
            export_log(frames_of(self._history[:EXPORTED]), scratch, cluster_id=CLUSTER_ID)
            written = tree_of(scratch)
        target = recorder.root / "export"
        target.mkdir()
        put_tree(written, target)
        recorder.mark(("exported", self._history[EXPORTED - 1].batch.end_offset))

    def check(self, root: Path, facts: Facts) -> None:
        export = root / "export"
        ((_, end_offset),) = facts
        if self._goes_on:
            export_log(frames_of(self._history), export, cluster_id=CLUSTER_ID)
            end_offset = self._history[-1].batch.end_offset
        for at in (None, self._history[EXPORTED // 2].batch.end_offset):
            image = image_at(self._history, end_offset if at is None else at)
            for engine in ("duckdb", "fold"):
                told = state_digest(export, at=at, engine=engine)
                if (told["end_offset"], told["digest"]) != (image.end_offset, digest(image)):
                    raise NotKept(f"{engine} finds another state at {at}: {told}")
