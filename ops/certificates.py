"""Edge: an authority in a folder, and what it certifies: for test clusters, and for those that have no authority elsewhere.

tls/ca.crt ca.key · controller-1.crt .key · broker-11.crt .key · admin.crt .key · revoked.toml, and principals.toml

Tests: tests/unit/metadata_log/node/identity/test_tls.py.
"""

import datetime as dt
import ipaddress
import os
import secrets
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.types import CertificatePublicKeyTypes as PublicKey
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
            check_secret(folder / "ca.key")
            key = serialization.load_pem_private_key((folder / "ca.key").read_bytes(), None)
            trusted = x509.load_pem_x509_certificates(self.ca.read_bytes())
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise InvalidSettings(
                f"{folder / 'ca.key'}: no key of an elliptic curve, as these authorities have"
            )
        own = [each for each in trusted if each.public_key() == key.public_key()]
        if not own:
            raise InvalidSettings(f"{self.ca}: none of its authorities has the key {folder / 'ca.key'}")
        self._key = key
        self.certificate = own[0]
        """Of this authority: while two are trusted, the file has both."""

    def _make(self) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        # OpenSSL finds the issuer of a certificate by its name: two that are trusted at once have two names.
        name = _name(f"metaquorum authority {self._cluster_id} {secrets.token_hex(4)}")
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
            _builder(_name(stem), self.certificate.subject, key, days=DAYS)
            .add_extension(x509.SubjectAlternativeName([uri, *map(_general, hosts)]), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(uses), critical=False)
            .add_extension(self._own_identifier, critical=False)
            .sign(self._key, hashes.SHA256())
        )
        replace_file(files.key, _pem(key))
        replace_file(files.certificate, certificate.public_bytes(serialization.Encoding.PEM))
        return files

    def renewed(self, found: x509.Certificate, key: PublicKey, *, days: int = DAYS) -> bytes:
        """Return a certificate for a key, in PEM, that names what another one names, for as many days.

        Raises:
            InvalidSettings: this authority ends sooner.
        """
        now = dt.datetime.now(dt.UTC)
        ends = self.certificate.not_valid_after_utc
        if ends < now + dt.timedelta(days=days):
            raise InvalidSettings(
                f"{self.ca}: this authority ends at {ends:%Y-%m-%d}, sooner than a certificate of {days} days: rotate the "
                "authority first, or give --days"
            )
        builder = _builder_for(found.subject, self.certificate.subject, key, days=days)
        builder = builder.add_extension(self._own_identifier, critical=False)
        for extension in found.extensions:
            if not isinstance(extension.value, x509.SubjectKeyIdentifier | x509.AuthorityKeyIdentifier):
                builder = builder.add_extension(extension.value, critical=extension.critical)
        return builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    @property
    def _own_identifier(self) -> x509.AuthorityKeyIdentifier:
        return x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())

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


def new_key() -> tuple[PublicKey, bytes]:
    """Return the public half of a new key, and the key in PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    return key.public_key(), _pem(key)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, *, days: int
) -> x509.CertificateBuilder:
    return _builder_for(subject, issuer, key.public_key(), days=days)


def _builder_for(
    subject: x509.Name, issuer: x509.Name, key: PublicKey, *, days: int
) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + dt.timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
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
