"""Edge: an entry is added to the list of revoked certificates, and the list is brought to every node.
Tests: tests/unit/ops/verbs/test_certificates.py, tests/cluster/test_certificates.py.
"""

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import serialization

from metadata_log.errors import InvalidRequest, InvalidSettings
from metadata_log.node.disk.durable_files import replace_file
from metadata_log.node.identity.certificate_dates import first_certificate
from metadata_log.node.identity.credentials import TlsFiles
from metadata_log.node.identity.revocations import NONE, Revoked, revoked_in
from metadata_log.printable import json_text
from ops.admin.certificate_rotation import Install
from ops.admin.cluster import Cluster
from ops.admin.exchange import Unreachable
from ops.admin.rolling import NotBack, UnsafeStep, wait_until
from ops.admin.shown_certificates import served, targets

_LISTED: Final = re.compile(rb'^metaquorum_certificates_revoked_list\{digest="([0-9a-f]+)"\} 1', re.MULTILINE)


_OF_AUTHORITY: Final = (
    "the certificate of an authority: a list of revoked ones has those that authorities issued. To trust an authority no "
    "longer: certificates rotate authority"
)


class Entry(NamedTuple):
    """A certificate to revoke, by one of both."""

    sha256: str | None
    serial: str | None
    note: str

    @property
    def name(self) -> str:
        return f"of serial number {self.serial}" if self.sha256 is None else f"of SHA-256 {self.sha256}"

    @property
    def text(self) -> str:
        key, value = ("serial", self.serial) if self.sha256 is None else ("sha256", self.sha256)
        note = f"note = {json_text(self.note)}\n" if self.note else ""
        return f'[[revoked]]\n{key} = "{value}"\n{note}'

    @property
    def revoked(self) -> Revoked:
        return revoked_in(self.text.encode())

    def shown(self) -> dict[str, Any]:
        return {"sha256": self.sha256, "serial": self.serial, "note": self.note}

    def write(self, file: Path, content: bytes) -> None:
        """Replace the list; raises DiskFailed."""
        replace_file(file, content)


def entry_of(certificate: Path | None, serial: str | None, note: str) -> Entry:
    """Return the entry for the first certificate of a file, or for a serial number.

    Raises:
        InvalidRequest: it is none.
    """
    if certificate is None:
        digits = (serial or "").replace(":", "").lower()
        if not re.fullmatch("[0-9a-f]{1,40}", digits):
            raise InvalidRequest(f"--serial {serial}: wanted hex digits, with or without colons")
        if not int(digits, 16):
            raise InvalidRequest(f"--serial {serial}: no certificate has the serial number 0 (RFC 5280)")
        return Entry(None, digits, note)
    try:
        der = first_certificate(certificate.read_bytes())
        is_authority = _is_authority(x509.load_der_x509_certificate(der))
    except (OSError, ValueError) as error:
        raise InvalidRequest(f"{certificate}: {error}") from error
    if is_authority:
        raise InvalidRequest(f"{certificate}: {_OF_AUTHORITY}")
    return Entry(hashlib.sha256(der).hexdigest(), None, note)


def _is_authority(certificate: x509.Certificate) -> bool:
    try:
        return bool(certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca)
    except x509.ExtensionNotFound:
        return False


def with_entry(file: Path, entry: Entry) -> bytes:
    """Return the content of a list with one more entry; one that is there already is not added again.

    Raises:
        InvalidSettings: the file is no list of revoked certificates.
    """
    content, before = b"", NONE
    if file.exists():
        try:
            content = file.read_bytes()
            before = revoked_in(content)
        except (OSError, ValueError) as error:
            raise InvalidSettings(f"{file}: no list of revoked certificates: {error}") from error
    wanted = entry.revoked
    if wanted.sha256 <= before.sha256 and wanted.serials <= before.serials:
        return content
    between = b"" if not content else b"\n" if content.endswith(b"\n") else b"\n\n"
    return content + between + entry.text.encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class Revocation:
    """How a list is brought to the nodes."""

    client: Cluster
    install: Install
    show: TlsFiles | None
    patience_s: float

    def check_is_shown_by_no_node(self, entry: Entry, *, force: bool) -> None:
        """Refuse to revoke what a running node shows, unless `force` says so; and the serial number of an authority.

        Raises:
            InvalidRequest: it is that of an authority that this command trusts.
            UnsafeStep: names the node.
        """
        authorities = () if self.show is None else x509.load_pem_x509_certificates(self.show.ca.read_bytes())
        if any(entry.revoked.has(one.public_bytes(serialization.Encoding.DER)) for one in authorities):
            raise InvalidRequest(f"{entry.name}: {_OF_AUTHORITY}")
        if force:
            return
        for target in targets(self.client):
            for listener in target.listeners:
                try:
                    certificate = served(listener.address, self.show)
                except Unreachable as error:
                    self.client.say(f"{target.name}: {error.message}")
                    continue
                if entry.revoked.has(certificate.public_bytes(serialization.Encoding.DER)):
                    raise UnsafeStep(
                        f"{target.name} shows this certificate on {listener.name}: it would be cut off. Give it another one "
                        "first (certificates rotate nodes); --force revokes it all the same"
                    )
        own = (
            None if self.show is None else x509.load_pem_x509_certificate(self.show.certificate.read_bytes())
        )
        if own is not None and entry.revoked.has(own.public_bytes(serialization.Encoding.DER)):
            raise UnsafeStep("this command itself shows this certificate: show another one, or give --force")

    def bring(self, file: Path) -> list[str]:
        """Bring the list to every node, and return their names once it counts there.

        Raises:
            NotBack: a node did not take it in time.
        """
        wanted = revoked_in(file.read_bytes())
        found = [one for one in targets(self.client) if one.url is not None]
        for target in found:
            self.install(target, "revoked.toml", file)
        for target in found:
            url = target.url or ""
            wait_until(
                self.client,
                lambda at=url: self._why_not(at, wanted),  # type: ignore[misc]  # a lambda's defaults
                NotBack,
                f"{target.name} was given the list",
                patience_s=self.patience_s,
            )
        return [target.name for target in found]

    def _why_not(self, url: str, wanted: Revoked) -> str | None:
        answer = self.client.ask_one(url, "/metrics", accept="text/plain")
        if not answer.ok:
            return f"{url}/metrics answers {answer.status}"
        count = re.search(rb"^metaquorum_certificates_revoked (\S+)$", answer.body, re.MULTILINE)
        listed = _LISTED.search(answer.body)
        entries = 0 if count is None else int(float(count[1]))
        if listed is None and b"metaquorum_certificates_revoked_list" not in answer.body:
            is_it = entries == wanted.entries  # a node of an earlier release tells no more
        else:
            is_it = listed is not None and listed[1].decode() == wanted.digest
        if is_it:
            return None
        has = "no list" if listed is None and not entries else f"another list, of {entries} entries,"
        return f"{has} counts there, and this one of {wanted.entries} should ([tls] revoked in its settings)"
