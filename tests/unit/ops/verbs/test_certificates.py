"""Edge: `certificates list|rotate|revoke` without a cluster: files, lists, and what is refused."""

import json
import time
from pathlib import Path

import pytest

from metadata_log.node.identity.certificate_dates import first_certificate
from metadata_log.node.identity.revocations import read_revoked
from ops import cli
from ops.admin.certificate_revocation import entry_of
from ops.admin.certificate_rotation import authority_in
from tests.support.certificates import DAY_S, certified
from tests.unit.metadata_log.node.identity.test_tls import CLUSTER, authority


@pytest.fixture(autouse=True)
def _nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_files_are_listed_by_their_ends_and_those_that_end_soon_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ours = authority(tmp_path / "tls")
    now_s = time.time()
    certified(ours, "user", "anna", begins_s=now_s - 9, ends_s=now_s + 5 * DAY_S)
    ours.certify("controller", "1")
    words = ["certificates", "list", str(tmp_path / "tls")]
    assert cli.main([*words, "-o", "json", "--ca", str(ours.ca)]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(Path(one["where"]).name, one["trusted"]) for one in rows] == [
        ("anna.crt", True),
        ("controller-1.crt", True),
        ("ca.crt", True),
    ]
    assert {one["revoked"] for one in rows} == {None}, "there is no list"
    revoke = ["certificates", "revoke", str(tmp_path / "tls/anna.crt"), "--yes"]
    assert cli.main([*revoke, "--list", str(tmp_path / "tls/revoked.toml")]) == 0
    capsys.readouterr()
    assert cli.main([*words, "-o", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [Path(one["where"]).name for one in rows if one["revoked"]] == ["anna.crt"]
    assert cli.main([*words, "--expiring", "30d"]) == 10
    assert "anna.crt" in (said := capsys.readouterr().out)
    assert "controller-1" not in said
    assert cli.main([*words, "--expiring", "1d"]) == 0
    assert "no certificate that ends within" in capsys.readouterr().out


def test_a_list_of_revoked_certificates_grows_by_what_it_lacks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ours = authority(tmp_path / "tls")
    lost = ours.certify("user", "anna").certificate
    file = tmp_path / "revoked.toml"
    words = ["certificates", "revoke", "--list", str(file), "--yes"]
    assert cli.main([*words, str(lost), "--dry-run"]) == 0
    assert not file.exists()
    assert cli.main([*words, str(lost), "--note", 'the "big" one']) == 0
    assert "bring" in capsys.readouterr().err
    assert cli.main([*words, "--serial", "0A:1B"]) == 0
    kept = file.read_bytes()
    assert cli.main([*words, str(lost)]) == 0
    assert file.read_bytes() == kept, "it is there already"
    found = read_revoked(file)
    assert found.serials == {0xA1B}
    assert found.has(first_certificate(lost.read_bytes()))
    assert file.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("words", "code", "why"),
    [
        (["revoke", "--list", "r.toml", "--yes"], 2, "name the certificate"),
        (["revoke", "--serial", "1", "--yes"], 2, "--list FILE"),
        (["revoke", "--serial", "xyz", "--list", "r.toml", "--yes"], 3, "wanted hex digits"),
        (["revoke", "--serial", "00:00", "--list", "r.toml", "--yes"], 3, "serial number 0"),
        (["revoke", "tls/ca.crt", "--list", "r.toml", "--yes"], 3, "the certificate of an authority"),
        (["revoke", "--serial", "1", "--list", "broken.toml", "--yes"], 3, "no list of revoked certificates"),
        (["revoke", "--serial", "1", "--list", "r.toml"], 2, "no terminal to ask on"),
        (["revoke", "broken.toml", "--list", "r.toml", "--yes"], 3, "holds no certificate"),
        (["rotate", "nodes"], 2, "--authority DIR"),
        (["rotate", "nodes", "--step", "trust"], 2, "--step is of `rotate authority`"),
        (["rotate", "nodes", "--install", "scp {wrong}"], 2, "{wrong} is none of"),
        (["list"], 2, "name controllers"),
    ],
)
def test_what_is_wrong_is_refused(
    tmp_path: Path, words: list[str], code: int, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "broken.toml").write_text("[[revoked")
    authority(tmp_path / "tls")
    assert cli.main(["certificates", *words]) == code
    assert why in capsys.readouterr().err
    assert not (tmp_path / "r.toml").exists()


def test_a_folder_without_an_authority_gets_none(tmp_path: Path) -> None:
    with pytest.raises(Exception, match=r"has no ca\.crt: name the folder"):
        authority_in(tmp_path, cluster_id=CLUSTER)
    assert [*tmp_path.iterdir()] == []
    assert entry_of(None, "0a", "").name == "of serial number 0a"
