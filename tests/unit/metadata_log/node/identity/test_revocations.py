"""A list of revoked certificates: what it names, what is refused, and that a change closes what is open."""

import asyncio
import hashlib
import random
import ssl
from contextlib import suppress
from pathlib import Path

import pytest
from cryptography import x509

from metadata_log.errors import AuthenticationFailed, InvalidSettings
from metadata_log.node.addresses import http_url
from metadata_log.node.identity.certificate_dates import first_certificate, serial_of
from metadata_log.node.identity.certificate_metrics import certificates_revoked
from metadata_log.node.identity.credentials import TlsFiles
from metadata_log.node.identity.revocations import read_revoked
from metadata_log.node.identity.tls import Tls, revoked_by_node
from ops.admin.client import ClusterClient
from ops.admin.exchange import Credentials
from ops.certificates import Authority
from tests.unit.metadata_log.node.identity.test_tls import CLUSTER, authority, serving, told


def entry(files: TlsFiles) -> str:
    der = first_certificate(files.certificate.read_bytes())
    return f'[[revoked]]\nsha256 = "{hashlib.sha256(der).hexdigest()}"\nnote = "lost"\n'


def listed(folder: Path, text: str) -> Path:
    """Write a list as an operator does: replaced, never half of it."""
    part = folder / "revoked.part"
    part.write_text(text)
    return part.replace(folder / "revoked.toml")


def test_a_list_names_certificates_by_hash_or_serial_number(tmp_path: Path) -> None:
    ours = authority(tmp_path)
    one, two, three = (ours.certify("user", who) for who in ("anna", "bert", "carl"))
    ders = [first_certificate(each.certificate.read_bytes()) for each in (one, two, three)]
    numbers = [x509.load_der_x509_certificate(der).serial_number for der in ders]
    assert [*map(serial_of, ders)] == numbers
    found = read_revoked(listed(tmp_path, f'{entry(one)}[[revoked]]\nserial = "{numbers[1]:X}"\n'))
    assert [found.has(der) for der in ders] == [True, True, False]
    assert found.entries == 2
    again = read_revoked(
        listed(tmp_path, f'[[revoked]]\nserial = "{numbers[1]:x}"\nnote = "b"\n{entry(one)}')
    )
    assert again.digest == found.digest, "it is that of what is named"
    assert found.digest != read_revoked(listed(tmp_path, f"{entry(one)}{entry(two)}")).digest
    assert read_revoked(listed(tmp_path, "")).entries == 0
    with pytest.raises(ValueError, match="no certificate in DER"):
        serial_of(b"0")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[[revoked]]\n", "entry 1 has either sha256 or serial"),
        ('[[revoked]]\nserial = "1"\nsha256 = "1"\n', "entry 1 has either"),
        ('[[revoked]]\nserial = "0a:1b"\n', "1 to 40 hex digits, without colons"),
        ('[[revoked]]\nsha256 = "AB"\n', "64 lower-case hex digits"),
        ('[[revoked]]\nserial = "00"\n', "serial number 0"),
        ('[[revokd]]\nserial = "1"\n', "no list of revoked certificates"),
        ("=", "no list of revoked certificates"),
    ],
)
def test_another_file_is_no_list(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(InvalidSettings, match=why):
        read_revoked(listed(tmp_path, text))


def test_a_list_that_others_may_change_does_not_count(tmp_path: Path) -> None:
    listed(tmp_path, "").chmod(0o666)
    with pytest.raises(InvalidSettings, match="mode 0666"):
        read_revoked(tmp_path / "revoked.toml")


async def test_what_is_revoked_is_refused_and_what_is_open_is_closed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Goal: a lost key ends at once. Method: two open connections of two users, of whom one is revoked."""
    ours = authority(tmp_path)
    file = listed(tmp_path, "")
    files = ours.certify("controller", "1")
    tls = Tls(TlsFiles(files.certificate, files.key, files.ca, file), cluster_id=CLUSTER)
    lost, kept = ours.certify("user", "lost"), ours.certify("user", "kept")
    async with serving(tls) as address:
        open_now = [await asyncio.open_connection(*address, ssl=one.client()) for one in (lost, kept)]
        for reader, writer in open_now:
            writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            assert (await reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 200")
        listed(tmp_path, entry(lost))
        assert tls.look_at_revoked()
        assert not tls.look_at_revoked(), "once"
        _, of_stranger = await asyncio.open_connection(*address)  # who never ends the handshake
        async with asyncio.timeout(10):
            while len(tls.server.accepted) < len(open_now) + 1:
                await asyncio.sleep(0.01)
        await tls.end_revoked()
        of_stranger.close()
        (reader, of_lost), (_, of_kept) = open_now
        with suppress(ConnectionError, ssl.SSLError):
            while await asyncio.wait_for(reader.read(100), 10):
                pass
        assert not of_kept.transport.is_closing()
        assert (await told(address, kept.client()))[0] == "User:kept"
        asking = ClusterClient(
            (http_url(address, tls=True),),
            timeout_s=3_600,
            rng=random.Random(1),
            credentials=Credentials(lost.client()),
        )
        for ask in (lambda: asking.read("/"), lambda: asking.write("POST", "/", {"a": "b" * 100_000})):
            with pytest.raises(AuthenticationFailed, match="the certificate of this client is revoked"):
                await asyncio.to_thread(ask)
        for writer in (of_lost, of_kept):
            writer.close()
        now = revoked_by_node(tls)
        count, digests = certificates_revoked(now.entries, now.digest)
        assert now.entries == count.samples[0].value == 1
        assert digests.samples[0].labels == {"digest": read_revoked(file).digest}
        said = {(each.msg, getattr(each, "reason", "")) for each in caplog.records}
        assert ("connection_ended", "its certificate is revoked") in said
        assert ("certificate_refused", "its certificate is revoked") in said


async def test_a_server_whose_certificate_is_revoked_is_not_asked(tmp_path: Path) -> None:
    ours = authority(tmp_path)
    lost, other = ours.certify("controller", "1"), ours.certify("controller", "2")
    file = listed(tmp_path, entry(lost))
    ours_now = Tls(TlsFiles(other.certificate, other.key, other.ca, file), cluster_id=CLUSTER)
    async with serving(Tls(lost, cluster_id=CLUSTER)) as address:
        for context in (ours_now.client, ours_now.peer_client, ours_now.anonymous):
            with pytest.raises(ssl.SSLCertVerificationError, match="its certificate is revoked"):
                await told(address, context)


def test_a_list_that_is_broken_leaves_the_one_before_and_is_a_reason(tmp_path: Path) -> None:
    ours = Authority(tmp_path, cluster_id=CLUSTER)
    files = ours.certify("controller", "1")
    file = listed(tmp_path, entry(files))
    tls = Tls(TlsFiles(files.certificate, files.key, files.ca, file), cluster_id=CLUSTER)
    assert [code for code, _ in tls.reasons()] == ["CERTIFICATE_REVOKED"]
    listed(tmp_path, "[[revoked")
    assert not tls.look_at_revoked()
    assert [code for code, _ in tls.reasons()] == ["REVOKED_NOT_RELOADED", "CERTIFICATE_REVOKED"]
    file.unlink()
    assert not tls.look_at_revoked()
    assert revoked_by_node(tls).entries == 1
    with pytest.raises(InvalidSettings, match="No such file"):
        Tls(TlsFiles(files.certificate, files.key, files.ca, file), cluster_id=CLUSTER)
    listed(tmp_path, "")
    assert tls.look_at_revoked()
    assert [*tls.reasons()] == []
