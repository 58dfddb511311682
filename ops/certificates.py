"""Edge: an authority and certificates for a test cluster. A cluster that matters has an authority of its own elsewhere.

tls/ca.crt ca.key · controller-1.crt .key · broker-11.crt .key · admin.crt .key · revoked.toml, and principals.toml

Tests: tests/unit/metadata_log/node/identity/test_tls.py.
"""

import datetime as dt
import ipaddress
import os
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from metadata_log.errors import InvalidSettings
from metadata_log.node.disk.durable_files import DIRECTORY_MODE, renamed_os_errors, replace_file
from metadata_log.node.identity.certified_names import SCHEME
from metadata_log.node.identity.credentials import TlsFiles
from metadata_log.node.identity.ownership import check_secret

DAYS: Final = 825
"""Of a certificate; the authority's lives five times as long."""
ADMIN: Final = "admin"
REVOKED: Final = "revoked.toml"
HOSTS: Final = ("127.0.0.1", "::1", "localhost")


class Authority:
    """The authority of one test cluster, in a folder with all that it certified."""

    def __init__(self, folder: Path, *, cluster_id: str) -> None:
        """Read the authority, or make it where the folder has none. No other user may enter the folder from now on.

        Raises:
            DiskFailed: the folder cannot be written.
            InvalidSettings: it belongs to another user.
        """
        self.folder = folder
        self._cluster_id = cluster_id
        self.ca = folder / "ca.crt"
        with renamed_os_errors(folder):
            folder.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
            if folder.stat().st_uid != os.geteuid():
                raise InvalidSettings(
                    f"{folder} belongs to another user, who could replace the keys: give it to this one (chown) or remove it"
                )
            folder.chmod(DIRECTORY_MODE)
            if not self.ca.exists():
                self._make()
            self._certificate = x509.load_pem_x509_certificate(self.ca.read_bytes())
            check_secret(folder / "ca.key")
            key = serialization.load_pem_private_key((folder / "ca.key").read_bytes(), None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        self._key = key

    def _make(self) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        name = _name(f"metaquorum test authority {self._cluster_id}")
        certificate = (
            _builder(name, name, key, days=5 * DAYS)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs_certificates=True), critical=True)
            .sign(key, hashes.SHA256())
        )
        replace_file(self.folder / "ca.key", _pem(key))
        replace_file(self.ca, certificate.public_bytes(serialization.Encoding.PEM))  # last: now there is one

    def certify(self, role: str, who: str, *, hosts: tuple[str, ...] = HOSTS) -> TlsFiles:
        """Return the certificate of controller, broker or user `who`; it is made where there is none.

        That of a user names no host and is no server's.

        Raises:
            DiskFailed: it cannot be written.
        """
        stem = who if role == "user" else f"{role}-{who}"
        files = TlsFiles(self.folder / f"{stem}.crt", self.folder / f"{stem}.key", self.ca)
        if files.certificate.exists():
            return files
        key = ec.generate_private_key(ec.SECP256R1())
        uri = x509.UniformResourceIdentifier(f"{SCHEME}://{self._cluster_id}/{role}/{who}")
        uses = [ExtendedKeyUsageOID.CLIENT_AUTH]
        if role == "user":
            hosts = ()
        else:
            uses.append(ExtendedKeyUsageOID.SERVER_AUTH)
        certificate = (
            _builder(_name(stem), self._certificate.subject, key, days=DAYS)
            .add_extension(x509.SubjectAlternativeName([uri, *map(_general, hosts)]), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(uses), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        replace_file(files.key, _pem(key))
        replace_file(files.certificate, certificate.public_bytes(serialization.Encoding.PEM))
        return files

    def write_revoked(self) -> Path:
        """Return the list of revoked certificates of this cluster; an empty one is made where there is none.

        Raises:
            DiskFailed: it cannot be written.
        """
        file = self.folder / REVOKED
        if not file.exists():
            replace_file(file, b"")
        return file

    def write_principals(self, file: Path) -> None:
        """Give the admin of this cluster the role of one, unless the file is there; brokers of Kafka name it in their way.

        Raises:
            DiskFailed: it cannot be written.
        """
        if not file.exists():
            names = (f"User:{ADMIN}", f"User:CN={ADMIN}")
            rows = [f'[[principals]]\nname = "{name}"\nroles = ["admin"]\n' for name in names]
            replace_file(file, "\n".join(rows).encode())


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, *, days: int
) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + dt.timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _general(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host.encode("idna").decode())


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
