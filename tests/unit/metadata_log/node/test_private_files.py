"""Edge: nobody but its owner reads a data directory."""

import logging
import os
import random
import stat
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pytest

from metadata_log.ids import NodeId
from metadata_log.node.disk.data_directory import DirectoryLock, format_directory
from metadata_log.node.disk.durable_files import quarantine_copy, replace_file

CLUSTER = "4L6g3nShT-eMCtK--X86sw"


def wide(directory: Path) -> list[tuple[str, str]]:
    """Return the names below a directory, and itself, that others may read or change."""
    names = [directory, *directory.rglob("*")]
    return [(str(name), oct(name.stat().st_mode)) for name in names if name.stat().st_mode & 0o077]


@pytest.fixture(autouse=True)
def _wide_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def formatted(directory: Path) -> Path:
    format_directory(
        directory, role="controller", node_id=NodeId(1), cluster_id=CLUSTER, rng=random.Random(1)
    )
    return directory


def test_what_is_written_is_private_whatever_the_umask(tmp_path: Path) -> None:
    data = formatted(tmp_path / "data")
    with DirectoryLock(data):
        replace_file(data / "log" / "small", b"x")
        quarantine_copy(data / "log" / "small")
    assert not wide(data)


@pytest.mark.parametrize("is_link", [False, True])
def test_what_an_earlier_run_left_lends_a_file_neither_its_mode_nor_its_place(
    tmp_path: Path, *, is_link: bool
) -> None:
    partial, elsewhere = tmp_path / "admin.key.part", tmp_path / "elsewhere"
    if is_link:
        partial.symlink_to(elsewhere)
    else:
        partial.write_bytes(b"")
        partial.chmod(0o644)
    replace_file(tmp_path / "admin.key", b"x")
    assert not (tmp_path / "admin.key").is_symlink() and not elsewhere.exists()
    assert not wide(tmp_path)


def test_a_wide_directory_is_narrowed_at_the_start(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    data = formatted(tmp_path / "data")
    (data / "log" / "00000000000000000000.log").write_bytes(b"hunter2")
    (data / "log").chmod(0o755)
    data.chmod(0o755)
    outside = tmp_path / "outside"
    outside.write_bytes(b"")
    outside.chmod(0o644)
    (data / "link").symlink_to(outside)
    with caplog.at_level(logging.WARNING), DirectoryLock(data):
        pass
    (line,) = (one for one in caplog.records if one.getMessage() == "permissions_narrowed")
    assert line.names == 3  # type: ignore[attr-defined]  # the log's own field
    assert not [name for name in wide(data) if "link" not in name[0]]
    assert stat.S_IMODE(outside.stat().st_mode) == 0o644
    caplog.clear()
    with DirectoryLock(data):
        assert not caplog.records


def test_a_directory_of_another_user_is_served_and_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = formatted(tmp_path / "data")
    data.chmod(0o770)
    with (
        patch("pathlib.Path.chmod", side_effect=PermissionError(1, "Operation not permitted", str(data))),
        DirectoryLock(data),
    ):
        pass
    assert [line.getMessage() for line in caplog.records] == ["permissions_not_narrowed"]
