"""Edge: files of others, and files that others may read or change, are refused by name before they count."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from metadata_log.errors import InvalidSettings
from metadata_log.node.identity.access import Access
from metadata_log.node.identity.credentials import bearer_from
from metadata_log.node.identity.ownership import check_folder, check_secret, check_trusted
from metadata_log.node.identity.tls import Tls
from ops.certificates import Authority
from ops.local.cluster import LocalCluster
from tests.unit.metadata_log.node.identity.test_tls import authority, copied


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_text("t" * 43)
    path.chmod(0o600)
    return path


@pytest.mark.parametrize(("mode", "secret", "trusted"), [
    (0o600, True, True), (0o400, True, True), (0o640, False, True), (0o604, False, True),
    (0o644, False, True), (0o620, False, False), (0o602, False, False), (0o666, False, False),
])  # fmt: skip
def test_modes(file: Path, mode: int, *, secret: bool, trusted: bool) -> None:
    file.chmod(mode)
    for check, passes in ((check_secret, secret), (check_trusted, trusted)):
        if passes:
            check(file)
        else:
            with pytest.raises(InvalidSettings, match=f"{file}: mode {mode:04o}: .* chmod [0-7]+ {file}"):
                check(file)


def test_a_file_of_another_user_is_refused_and_one_of_root_may_be_readable_by_its_group(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("metadata_log.node.identity.ownership.ROOT", file.stat().st_uid)
    monkeypatch.setattr(os, "geteuid", lambda: file.stat().st_uid + 1)
    file.chmod(0o640)
    check_secret(file)  # as an orchestrator mounts it
    file.chmod(0o644)
    with pytest.raises(InvalidSettings, match="others may read"):
        check_secret(file)
    monkeypatch.setattr("metadata_log.node.identity.ownership.ROOT", file.stat().st_uid + 2)
    for check in (check_secret, check_trusted):
        with pytest.raises(InvalidSettings, match=f"{file}: belongs to user"):
            check(file)
    with pytest.raises(InvalidSettings, match=f"{file.parent}: belongs to user"):
        check_folder(file.parent)


def test_a_folder_in_which_others_may_replace_files_is_refused_unless_it_is_sticky(file: Path) -> None:
    file.parent.chmod(0o777)
    with pytest.raises(InvalidSettings, match=f"{file.parent}: mode 0777: others may replace"):
        check_trusted(file)
    file.parent.chmod(0o1777)
    check_trusted(file)


def test_what_a_node_and_a_command_read_is_looked_at(tmp_path: Path, file: Path) -> None:
    files = copied(authority(tmp_path / "ours").certify("controller", "1"), tmp_path)
    principals = tmp_path / "principals.toml"
    principals.write_text("principals = []\n")
    reads: list[tuple[Path, int, Callable[[], object]]] = [
        (files.key, 0o640, lambda: Tls(files, cluster_id="c")),
        (files.key, 0o640, files.client),
        (files.ca, 0o666, lambda: Tls(files, cluster_id="c")),
        (files.certificate, 0o620, lambda: Tls(files, cluster_id="c")),
        (file, 0o644, lambda: bearer_from(file)),
        (principals, 0o622, lambda: Access(principals, cluster_id="c")),
    ]
    for path, mode, read in reads:
        path.chmod(0o600)
        read()
        path.chmod(mode)
        with pytest.raises(InvalidSettings, match=str(path)):
            read()
        path.chmod(0o600)


def test_a_key_that_becomes_readable_by_others_is_not_read_again(tmp_path: Path) -> None:
    ours = authority(tmp_path / "ours")
    files = copied(ours.certify("controller", "1"), tmp_path)
    tls = Tls(files, cluster_id="c")
    copied(ours.certify("controller", "2"), tmp_path)
    files.key.chmod(0o644)
    tls.look_again()
    assert [code for code, _ in tls.reasons()] == ["CERTIFICATES_NOT_RELOADED"]
    files.key.chmod(0o600)
    tls.look_again()
    assert not list(tls.reasons())


def test_an_authoritys_key_that_others_may_read_certifies_nobody(tmp_path: Path) -> None:
    authority(tmp_path / "tls")
    (tmp_path / "tls/ca.key").chmod(0o644)
    with pytest.raises(InvalidSettings, match=r"ca\.key: mode 0644"):
        Authority(tmp_path / "tls", cluster_id="c")


@pytest.mark.parametrize("secure", [True, False])
def test_a_cluster_does_not_start_in_a_directory_that_others_may_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, secure: bool
) -> None:
    """Goal: nobody else chooses which processes `up` signals, and which keys it uses."""
    directory = tmp_path / "c"
    directory.mkdir()
    directory.chmod(0o775)
    with pytest.raises(InvalidSettings, match=f"{directory}: mode 0775"):
        LocalCluster(directory, secure=secure).prepare()
    directory.chmod(0o700)
    monkeypatch.setattr(os, "geteuid", lambda: directory.stat().st_uid + 1)
    monkeypatch.setattr("metadata_log.node.identity.ownership.ROOT", directory.stat().st_uid + 2)
    with pytest.raises(InvalidSettings, match=f"{directory}: belongs to user"):
        LocalCluster(directory, secure=secure).prepare()
    assert not list(directory.iterdir())
