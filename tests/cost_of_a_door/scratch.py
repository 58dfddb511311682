"""Pure: a made-up door, added to a copy of the production code: new files, and one line in the registry of doors.

The door of lines has one write, one read and one poll. `new/` holds its files, named as in the rooms.
"""

from pathlib import Path
from typing import Final

from tests.support.scratch_copy import Addition, Edit

REGISTRIES_MAX: Final = 1
"""A new door may edit this many files, and put one line into each."""
BEHIND: Final = '"http",  # brokers, administrators and other controllers'
DOOR: Final = Addition(
    Path(__file__).resolve().parent / "new", (Edit("quorum/node/doors.py", BEHIND, '    "lines",'),)
)
