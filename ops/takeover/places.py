"""Edge: the places of directories that are made beside them and renamed: found behind links, and checked beforehand.

Tests: tests/unit/ops/takeover/test_places.py.
"""

import os
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path

from metadata_log.errors import ForeignDirectory, InvalidRequest


def check_places(places: Sequence[Path]) -> None:
    """Check that each of the directories, whose paths have no links, can be made beside its place and renamed to it.

    Raises:
        InvalidRequest: two are one, or one lies in another.
        ForeignDirectory: one is a mount point, to which nothing is renamed.
    """
    for one, other in combinations(places, 2):
        if one == other:
            raise InvalidRequest(f"{one}: is named for two directories: name one for each")
        if one in other.parents or other in one.parents:
            raise InvalidRequest(f"{one} and {other}: one lies in the other: name two places side by side")
    for place in places:
        if os.path.ismount(place):
            raise ForeignDirectory(
                f"{place}: is a mount point, and is replaced as a whole: name a folder in it", path=str(place)
            )
