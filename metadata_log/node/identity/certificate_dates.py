"""Pure: from when until when certificates are valid, and what the nearness of their end is to an operator.

The dates are read from the files themselves: TLS of Python does not tell those of a certificate that is shown to others.

Source: RFC 5280, 4.1 (the order of fields) and 4.1.2.5 (UTCTime and GeneralizedTime).
"""

import base64
import binascii
import re
import ssl
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final, Literal, NamedTuple, TypeAlias

Kind: TypeAlias = Literal["CERTIFICATE", "AUTHORITY"]
DAY_S: Final = 86_400
ENDS_SOON_S: Final = 30 * DAY_S
"""A warning: time enough to renew a certificate on a working day."""
ENDS_VERY_SOON_S: Final = 2 * DAY_S
"""A reason for yellow: whatever renews certificates by itself has failed by now."""
_PEM: Final = re.compile(
    rb"-----BEGIN (?:X509 |TRUSTED )?CERTIFICATE-----(.+?)-----END (?:X509 |TRUSTED )?CERTIFICATE-----",
    re.DOTALL,
)
_UNITS: Final[tuple[tuple[str, int], ...]] = (
    ("days", DAY_S),
    ("hours", 3_600),
    ("minutes", 60),
    ("seconds", 1),
)
_VERSION_TAG: Final = 0xA0
_UTC_TIME_TAG: Final = 0x17


class _Certificate(NamedTuple):
    issuer: bytes
    subject: bytes
    begins_s: int
    ends_s: int


class Dated(NamedTuple):
    """The dates of one file, in Unix seconds: of a certificate with its intermediate ones, or of an authority."""

    kind: Kind
    path: str
    begins_s: int
    ends_s: int

    def objection(self, now_s: float) -> str | None:
        """Return why the file is of no use now; None if it is valid."""
        if now_s < self.begins_s:
            return (
                f"{self.path}: valid from {date_text(self.begins_s)} on, and by this machine's clock it is "
                f"{date_text(now_s)}: correct the clock, or wait"
            )
        if now_s > self.ends_s:
            return (
                f"{self.path}: expired at {date_text(self.ends_s)}, and by this machine's clock it is "
                f"{date_text(now_s)}: renew it, or correct the clock"
            )
        return None

    def condition(self, now_s: float) -> tuple[str, str] | None:
        """Return code and detail of what an operator should do about the end of this file; None: nothing yet."""
        objection = self.objection(now_s)
        if objection is not None:
            return f"{self.kind}_{'NOT_YET_VALID' if now_s < self.begins_s else 'EXPIRED'}", objection
        left_s = self.ends_s - now_s
        if left_s > ENDS_SOON_S:
            return None
        unit, unit_s = next(each for each in _UNITS if left_s >= 2 * each[1] or each[1] == 1)
        left = f"{int(left_s // unit_s)} {unit}"
        return (
            f"{self.kind}_ENDS_SOON",
            f"{self.path}: expires at {date_text(self.ends_s)}, in {left}: renew it",
        )

    def is_urgent(self, now_s: float) -> bool:
        """Return whether this file has ended, has not begun, or ends within ENDS_VERY_SOON_S."""
        return now_s < self.begins_s or now_s > self.ends_s - ENDS_VERY_SOON_S


def dated(
    *, certificate: tuple[str, bytes] | None = None, authority: tuple[str, bytes] | None = None
) -> tuple[Dated, ...]:
    """Return the dates of files, each given by its path and its content.

    A certificate ends with the first of its intermediate ones. Of several authorities in a file, those count that issued
    the certificate, where there is one; of these the one that ends last, since any of them suffices.

    Raises:
        ValueError: a file holds no certificate.
    """
    found: list[Dated] = []
    issuers: set[bytes] = set()
    if certificate is not None:
        path, content = certificate
        chain = _certificates(content)
        issuers = {each.issuer for each in chain}
        begins_s, ends_s = max(each.begins_s for each in chain), min(each.ends_s for each in chain)
        found.append(Dated("CERTIFICATE", path, begins_s, ends_s))
    if authority is not None:
        path, content = authority
        authorities = _certificates(content)
        ours = [each for each in authorities if each.subject in issuers] or authorities
        last = max(ours, key=lambda each: each.ends_s)
        found.append(Dated("AUTHORITY", path, last.begins_s, last.ends_s))
    return tuple(found)


def first_objection(files: Iterable[Dated], now_s: float) -> str | None:
    """Return why one of these files is of no use now; None if all are valid."""
    return next((objection for each in files if (objection := each.objection(now_s)) is not None), None)


def has_ended(certificate: Mapping[str, Any], now_s: float) -> bool:
    """Return whether a peer's certificate, as a connection tells it, is valid no longer.

    TLS looks at the dates when a connection begins, and never again.
    """
    text = certificate.get("notAfter")
    return text is not None and now_s > _seconds_of(text)


def ends_at_ms(certificate: Mapping[str, Any]) -> int | None:
    """Return the Unix time until which a peer's certificate is valid; None where the connection does not tell it."""
    text = certificate.get("notAfter")
    return None if text is None else _seconds_of(text) * 1000


@lru_cache(maxsize=256)
def _seconds_of(text: str) -> int:
    return ssl.cert_time_to_seconds(text)


def date_text(unix_s: float) -> str:
    return datetime.fromtimestamp(unix_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _certificates(content: bytes) -> Sequence[_Certificate]:
    try:
        return [_read(der) for der in certificates_in(content)]
    except (IndexError, OverflowError) as error:
        raise ValueError("its dates cannot be read") from error


def _read(der: bytes) -> _Certificate:
    _, at, _ = _field(der, 0)
    _, at, _ = _field(der, at)
    fields: list[tuple[int, int]] = []
    while len(fields) < 5:  # serial number, algorithm, issuer, validity, subject
        tag, begin, end = _field(der, at)
        if tag != _VERSION_TAG:
            fields.append((begin, end))
        at = end
    _, _, issuer, validity, subject = fields
    tag, begin, end = _field(der, validity[0])
    begins_s = _time(tag, der[begin:end])
    tag, begin, end = _field(der, end)
    return _Certificate(
        issuer=der[slice(*issuer)],
        subject=der[slice(*subject)],
        begins_s=begins_s,
        ends_s=_time(tag, der[begin:end]),
    )


def first_certificate(content: bytes) -> bytes:
    """Return the first certificate of a PEM file in DER: that of the file's owner, before intermediate ones.

    Raises:
        ValueError: it holds no certificate.
    """
    return certificates_in(content)[0]


def certificates_in(content: bytes) -> Sequence[bytes]:
    """Return the certificates of a PEM file in DER.

    Raises:
        ValueError: it holds no certificate.
    """
    try:
        found = [base64.b64decode(pem) for pem in _PEM.findall(content)]
    except binascii.Error as error:
        raise ValueError("it holds no certificate in base64") from error
    if not found:
        raise ValueError("it holds no certificate")
    return found


def serial_of(der: bytes) -> int:
    """Return the serial number of a certificate in DER.

    Raises:
        ValueError: it is no certificate.
    """
    try:
        _, at, _ = _field(der, 0)
        _, at, _ = _field(der, at)
        tag, begin, end = _field(der, at)
        if tag == _VERSION_TAG:
            _, begin, end = _field(der, end)
    except IndexError as error:
        raise ValueError("no certificate in DER") from error
    return int.from_bytes(der[begin:end], "big", signed=True)


def _field(der: bytes, at: int) -> tuple[int, int, int]:
    """Return the tag of a DER field, and where its content begins and ends."""
    length, begin = der[at + 1], at + 2
    if length & 0x80:
        begin += length & 0x7F
        length = int.from_bytes(der[at + 2 : begin], "big")
    if begin + length > len(der):
        raise IndexError("a field ends behind its certificate")
    return der[at], begin, begin + length


def _time(tag: int, text: bytes) -> int:
    digits = text.decode("ascii")
    if tag == _UTC_TIME_TAG:
        digits = ("19" if digits[:2] >= "50" else "20") + digits
    return int(datetime.strptime(digits, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp())
