"""A new door is files of its own and one line in the registry of doors."""

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.cost_of_a_door.scratch import DOOR, REGISTRIES_MAX
from tests.cost_of_a_door.use import use


def test_a_door_edits_one_line() -> None:
    assert len(DOOR.edited_files()) <= REGISTRIES_MAX
    assert len(DOOR.edits) == 1
    assert not {*DOOR.edited_files()} & {*DOOR.new_files()}


@pytest.mark.slow
def test_a_made_up_door_writes_reads_and_polls(tmp_path: Path) -> None:
    with TemporaryDirectory() as short:  # the path of a socket has at most 107 characters
        assert list(use(DOOR.make_scratch(tmp_path / "code"), Path(short) / "cluster"))
