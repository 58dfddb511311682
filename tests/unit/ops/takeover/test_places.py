"""Directories are made beside their places: these are apart from each other, and can be renamed to."""

import os
from pathlib import Path

import pytest

from metadata_log.errors import ForeignDirectory, InvalidRequest
from ops.takeover.places import check_places


def test_places_are_apart(tmp_path: Path) -> None:
    check_places([tmp_path / "a", tmp_path / "b", tmp_path / "ab"])
    with pytest.raises(InvalidRequest, match="a: is named for two directories"):
        check_places([tmp_path / "a", tmp_path / "b", tmp_path / "a"])
    for pair in (("a", "a/b/c"), ("a/b/c", "a")):
        with pytest.raises(InvalidRequest, match="one lies in the other"):
            check_places([tmp_path / each for each in pair])


def test_a_mount_point_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os.path, "ismount", lambda path: path == tmp_path / "mounted")
    check_places([tmp_path / "mounted" / "folder"])
    with pytest.raises(ForeignDirectory, match=r"mounted: is a mount point.*name a folder in it"):
        check_places([tmp_path / "mounted"])
