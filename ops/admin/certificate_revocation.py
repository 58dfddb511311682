"""Edge: an entry is added to the list of revoked certificates, and the list is brought to every node.
Tests: tests/unit/ops/verbs/test_certificates.py, tests/cluster/test_certificates.py.
"""

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

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
        return Entry(None, digits, note)
    try:
        der = first_certificate(certificate.read_bytes())
    except (OSError, ValueError) as error:
        raise InvalidRequest(f"{certificate}: {error}") from error
    return Entry(hashlib.sha256(der).hexdigest(), None, note)


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
        """Refuse to revoke what a running node shows, unless `force` says so.

        Raises:
            UnsafeStep: names the node.
        """
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
        wanted = revoked_in(file.read_bytes()).entries
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

    def _why_not(self, url: str, wanted: int) -> str | None:
        answer = self.client.ask_one(url, "/metrics", accept="text/plain")
        if not answer.ok:
            return f"{url}/metrics answers {answer.status}"
        found = re.search(rb"^metaquorum_certificates_revoked (\S+)$", answer.body, re.MULTILINE)
        if found is None or float(found[1]) != wanted:
            has = "no list" if found is None else f"a list of {float(found[1]):g} entries"
            return f"{has} counts there, and {wanted} entries should ([tls] revoked in its settings)"
        return None
