"""Certificates as nodes show them and as files hold them, also those that have ended."""

import asyncio
import time
from pathlib import Path

import pytest
from cryptography import x509

from metadata_log.errors import InvalidSettings
from metadata_log.node.addresses import http_url
from metadata_log.node.identity.tls import Tls
from ops.admin.exchange import Unreachable
from ops.admin.shown_certificates import described, in_files, is_issued_by, is_taken, served, uri_of
from ops.certificates import Authority, new_key
from tests.support.certificates import DAY_S, certified
from tests.support.processes import free_port
from tests.unit.metadata_log.node.identity.test_tls import CLUSTER, authority, serving


def read(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


async def test_what_a_listener_shows_is_read_and_whom_it_trusts_is_found(tmp_path: Path) -> None:
    ours, foreign = authority(tmp_path / "ours"), authority(tmp_path / "foreign")
    files = ours.certify("controller", "1")
    async with serving(Tls(files, cluster_id=CLUSTER)) as address:
        shown = await asyncio.to_thread(served, address, ours.certify("user", "anna"))
        assert shown == read(files.certificate) == await asyncio.to_thread(served, address, None)
        url = http_url(address, tls=True)
        # /healthz is not served here: what matters is that an answer comes, or none.
        assert not await asyncio.to_thread(is_taken, url, foreign.certify("user", "anna"))
    told = described(shown, [read(ours.ca)], now_s=time.time())
    assert told["uri"] == f"metaquorum://{CLUSTER}/controller/1"
    assert (told["trusted"], told["days_left"]) == (True, 824)
    assert int(told["serial"], 16) == shown.serial_number
    assert described(shown, [read(foreign.ca)], now_s=0)["trusted"] is False
    assert described(shown, [], now_s=0)["trusted"] is None


async def test_where_nobody_listens_is_said(tmp_path: Path) -> None:
    at = ("127.0.0.1", free_port())
    with pytest.raises(Unreachable, match="refused"):
        served(at, None)
    with pytest.raises(Unreachable, match="refused"):
        is_taken(http_url(at, tls=True), authority(tmp_path).certify("user", "anna"))


def test_files_and_folders_are_read_and_others_refused(tmp_path: Path) -> None:
    ours = authority(tmp_path)
    ended = certified(ours, "user", "anna", begins_s=time.time() - 9 * DAY_S, ends_s=time.time() - 2 * DAY_S)
    found = {path.name: one for path, one in in_files([tmp_path])}
    assert found.keys() == {"ca.crt", "anna.crt"}
    assert described(found["anna.crt"], [], now_s=time.time())["days_left"] == -2
    assert uri_of(found["ca.crt"]) is None
    with pytest.raises(InvalidSettings, match="holds no certificate"):
        [*in_files([ended.key])]
    with pytest.raises(InvalidSettings, match="No such file"):
        [*in_files([tmp_path / "none.crt"])]


def test_an_authority_renews_what_another_named_and_knows_its_own_in_a_file_of_two(tmp_path: Path) -> None:
    ours, following = authority(tmp_path / "ours"), authority(tmp_path / "next")
    before = read(ours.certify("controller", "1", hosts=("c1.example", "10.0.0.1")).certificate)
    public, _ = new_key()
    renewed = x509.load_pem_x509_certificate(following.renewed(before, public, days=7))
    of = x509.SubjectAlternativeName
    assert renewed.extensions.get_extension_for_class(of) == before.extensions.get_extension_for_class(of)
    assert renewed.subject == before.subject
    assert is_issued_by(renewed, following.certificate)
    assert not is_issued_by(renewed, ours.certificate)
    with pytest.raises(InvalidSettings, match="rotate the authority first"):
        following.renewed(before, public, days=9_999)
    both = following.ca.read_bytes() + ours.ca.read_bytes()
    ours.ca.write_bytes(both)
    assert Authority(ours.folder, cluster_id=CLUSTER).certificate == ours.certificate
    ours.ca.write_bytes(following.ca.read_bytes())
    with pytest.raises(InvalidSettings, match="none of its authorities has the key"):
        Authority(ours.folder, cluster_id=CLUSTER)
