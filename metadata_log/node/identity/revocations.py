"""Edge: certificates that count no longer though they have not ended: a file that a node reads again when it changes.

    [[revoked]]
    sha256 = "64 hex"             # of the certificate in DER: openssl x509 -in FILE -outform DER | sha256sum
    note = "laptop of anna"       # for people; left out: none

    [[revoked]]
    serial = "hex"                # every certificate of this serial number, whichever trusted authority issued it

Tests: tests/unit/metadata_log/node/identity/test_revocations.py.
"""

import hashlib
import re
import tomllib
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from metadata_log import limits
from metadata_log.errors import InvalidSettings
from metadata_log.node.identity.certificate_dates import serial_of
from metadata_log.node.identity.ownership import check_trusted
from metadata_log.wire.shapes import Shape, convert

_SHA256: Final = re.compile("[0-9a-f]{64}")
_SERIAL: Final = re.compile("[0-9a-fA-F]{1,40}")
"""RFC 5280, 4.1.2.2: at most 20 octets."""


class _Row(Shape, frozen=True):
    sha256: str | None = None
    serial: str | None = None
    note: str = ""


class _File(Shape, frozen=True):
    revoked: tuple[_Row, ...] = ()


class Revoked(NamedTuple):
    """The certificates that count no longer."""

    sha256: frozenset[str] = frozenset()
    serials: frozenset[int] = frozenset()
    digest: str = ""
    """Of what the list names, in 64 hex digits: lists of the same certificates have the same. "": there is no list."""

    def has(self, certificate: bytes) -> bool:
        """Answer whether a certificate, in DER, is one of them."""
        return (bool(self.serials) and serial_of(certificate) in self.serials) or (
            bool(self.sha256) and hashlib.sha256(certificate).hexdigest() in self.sha256
        )

    @property
    def entries(self) -> int:
        return len(self.sha256) + len(self.serials)


NONE: Final = Revoked()


def read_revoked(file: Path) -> Revoked:
    """Return the certificates that a file names.

    Raises:
        InvalidSettings: the file is missing, others may change it, or it is no list of revoked certificates.
    """
    check_trusted(file)
    try:
        content = file.read_bytes()
        if len(content) > limits.IDENTITY_BYTES_MAX:
            raise ValueError(f"larger than {limits.IDENTITY_BYTES_MAX} bytes")
        return revoked_in(content)
    except OSError as error:
        raise InvalidSettings(f"{file}: {error.strerror}") from error
    except (ValueError, msgspec.ValidationError) as error:
        raise InvalidSettings(f"{file}: no list of revoked certificates: {error}") from error


def revoked_in(content: bytes) -> Revoked:
    """Return the certificates that the content of a file names.

    Raises:
        ValueError: it is no list of revoked certificates.
    """
    found: _File = convert(tomllib.loads(content.decode()), _File, "file")
    sha256, serials = set[str](), set[int]()
    for place, row in enumerate(found.revoked, 1):
        if (row.sha256 is None) == (row.serial is None):
            raise ValueError(f"entry {place} has either sha256 or serial")
        if row.sha256 is not None:
            if not _SHA256.fullmatch(row.sha256):
                raise ValueError(f"entry {place}: sha256 has 64 lower-case hex digits")
            sha256.add(row.sha256)
        if row.serial is not None:
            if not _SERIAL.fullmatch(row.serial):
                raise ValueError(f"entry {place}: serial has 1 to 40 hex digits, without colons")
            serials.add(int(row.serial, 16))
    if 0 in serials:
        raise ValueError("no certificate has the serial number 0 (RFC 5280)")
    digest = hashlib.sha256("\n".join([*sorted(sha256), *map(str, sorted(serials))]).encode()).hexdigest()
    return Revoked(frozenset(sha256), frozenset(serials), digest)
