"""Edge: certificates of a test authority with dates of the test's own."""

import datetime as dt
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization

from metadata_log.node.disk.durable_files import replace_file
from metadata_log.node.identity.credentials import TlsFiles
from ops.certificates import Authority

DAY_S = 86_400


def _dated(found: x509.Certificate, begins_s: float, ends_s: float) -> x509.CertificateBuilder:
    """Return what makes the same certificate with other dates."""
    builder = (
        x509.CertificateBuilder()
        .subject_name(found.subject)
        .issuer_name(found.issuer)
        .public_key(found.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(dt.datetime.fromtimestamp(int(begins_s), dt.UTC))
        .not_valid_after(dt.datetime.fromtimestamp(int(ends_s), dt.UTC))
    )
    for extension in found.extensions:
        builder = builder.add_extension(extension.value, critical=extension.critical)
    return builder


def _redate(authority: Authority, file: Path, begins_s: float, ends_s: float) -> None:
    found = x509.load_pem_x509_certificate(file.read_bytes())
    signed = _dated(found, begins_s, ends_s).sign(authority._key, hashes.SHA256())
    replace_file(file, signed.public_bytes(serialization.Encoding.PEM))


def certified(authority: Authority, role: str, who: str, *, begins_s: float, ends_s: float) -> TlsFiles:
    """Return the files of a certificate that is valid between two times, in Unix seconds."""
    files = authority.certify(role, who)
    _redate(authority, files.certificate, begins_s, ends_s)
    return files


def date_authority(authority: Authority, *, begins_s: float, ends_s: float) -> None:
    """Give the authority's own certificate these dates; its key and its name stay."""
    _redate(authority, authority.ca, begins_s, ends_s)
