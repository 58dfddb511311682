"""Edge: the file that says with what a controller founds a cluster (B77)."""

import random
import stat
from pathlib import Path

import pytest

from metadata_log.errors import DamagedFile, WrittenByAnotherVersion
from metadata_log.ids import NodeId
from metadata_log.node.disk.data_directory import format_directory
from metadata_log.records.users import UserScramCredentialRecord
from quorum.decide.founding import Founding
from quorum.node.bootstrap import content_of, read_bootstrap

FOUNDING = Founding(
    27,
    0,
    (("group.version", 1), ("transaction.version", 2)),
    (UserScramCredentialRecord("alice", 2, b"salt", b"\x00stored", b"server", 8192, b"k" * 16),),
)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    assert read_bootstrap(tmp_path) is None
    for founding in (FOUNDING, Founding()):
        (tmp_path / "bootstrap.json").write_bytes(content_of(founding))
        assert read_bootstrap(tmp_path) == founding


@pytest.mark.parametrize(
    ("before", "after"), [(b"27", b"28"), (b"alice", b"mallo"), (b"}", b""), (b"{", b"[")]
)
def test_a_damaged_file_founds_nothing(tmp_path: Path, before: bytes, after: bytes) -> None:
    (tmp_path / "bootstrap.json").write_bytes(content_of(FOUNDING).replace(before, after, 1))
    with pytest.raises(DamagedFile, match="format again, or remove it where the cluster is founded"):
        read_bootstrap(tmp_path)


def test_the_file_of_a_later_release_is_named(tmp_path: Path) -> None:
    (tmp_path / "bootstrap.json").write_bytes(b'{"version": 2}')
    with pytest.raises(WrittenByAnotherVersion):
        read_bootstrap(tmp_path)


def test_the_directory_has_the_file_for_its_owner_alone(tmp_path: Path) -> None:
    format_directory(
        tmp_path / "data",
        role="controller",
        node_id=NodeId(1),
        cluster_id="A" * 22,
        rng=random.Random(1),
        bootstrap=content_of(FOUNDING),
    )
    file = tmp_path / "data" / "bootstrap.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert read_bootstrap(tmp_path / "data") == FOUNDING
