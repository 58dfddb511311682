"""Edge: the certificates that nodes show on their listeners, and those in files: what each names, and when it ends.
Tests: tests/unit/ops/admin/test_shown_certificates.py.
"""

import http.client
import socket
import ssl
import urllib.parse
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding

from metadata_log.errors import InvalidSettings, MetadataError
from metadata_log.node.addresses import HostPort, address_text, read_address
from metadata_log.node.identity.certificate_dates import DAY_S
from metadata_log.node.identity.credentials import TlsFiles, harden, load, tls_reason
from metadata_log.node.identity.revocations import read_revoked
from metadata_log.records.quorum import KAFKA_ENDPOINT
from ops.admin.cluster import Cluster, Endpoint
from ops.admin.exchange import Unreachable
from ops.admin.health import merged_status
from ops.admin.survey import check_is_let_in, none_answers, survey
from ops.certificates import REVOKED

Role: TypeAlias = Literal["controller", "broker"]
TLS_PROTOCOLS: Final = frozenset({1, 3})
"""SSL and SASL_SSL, as Kafka numbers the security of an endpoint."""
PEM_ENDS: Final = frozenset({".crt", ".pem", ".cer"})
ASKED_S: Final = 5.0


class Listener(NamedTuple):
    """Where a node shows its certificate; `name` is http, raft or kafka, or what a broker of Kafka calls it."""

    name: str
    address: HostPort


class Target(NamedTuple):
    """A node with its listeners; `url` is its HTTP, None for a broker of Kafka, whose key store is its own."""

    role: Role
    id: int
    url: str | None
    listeners: tuple[Listener, ...]

    @property
    def name(self) -> str:
        return f"{self.role} {self.id}"

    @property
    def stem(self) -> str:
        return f"{self.role}-{self.id}"

    @property
    def host(self) -> str:
        return self.listeners[0].address[0]


def targets(client: Cluster) -> list[Target]:
    """Return the nodes that have listeners with TLS, controllers first.

    Raises:
        Unreachable: no controller answers.
        AuthenticationFailed, NotAuthorized: as `check_is_let_in`.
    """
    nodes = survey(client)
    check_is_let_in(nodes)
    status = merged_status(nodes)
    if status is None:
        raise Unreachable(f"{none_answers(nodes)}{client.cure}")
    registered = {one["controller_id"]: one["endpoints"] for one in client.controllers()}
    found = [_controller(row, registered) for row in (*status["voters"], *status["observers"])]
    found += [_broker(client, one["broker_id"], one["endpoints"]) for one in client.brokers()]
    return [one for one in found if one.listeners]


def _controller(row: Mapping[str, Any], registered: Mapping[int, Sequence[Endpoint]]) -> Target:
    url: str | None = row["http"]
    listeners: list[Listener] = []
    if url is not None and url.startswith("https://"):
        listeners.append(Listener("http", _at(url)))
        if row["address"] is not None:
            listeners.append(Listener("raft", read_address(row["address"])))
        listeners += [
            Listener("kafka", (one["host"], one["port"]))
            for one in registered.get(row["id"], ())
            if one["name"] == KAFKA_ENDPOINT and one["security_protocol"] in TLS_PROTOCOLS
        ]
    return Target("controller", row["id"], url, tuple(listeners))


def _broker(client: Cluster, broker_id: int, endpoints: Sequence[Endpoint]) -> Target:
    encrypted = [one for one in endpoints if one["security_protocol"] in TLS_PROTOCOLS]
    url = None
    if encrypted and encrypted[0] is endpoints[0]:
        first = encrypted[0]
        url = f"https://{address_text((first['host'], first['port']))}"
        if not _is_ours(client, url):
            url = None
    listeners = [
        Listener("http" if place == 0 and url else one["name"].lower(), (one["host"], one["port"]))
        for place, one in enumerate(encrypted)
    ]
    return Target("broker", broker_id, url, tuple(listeners))


def _is_ours(client: Cluster, url: str) -> bool:
    """Answer whether a broker speaks our HTTP at its first address: one of Kafka does not."""
    try:
        return client.ask_one(url, "/healthz", timeout_s=ASKED_S).ok
    except MetadataError:
        return False


def _at(url: str) -> HostPort:
    parts = urllib.parse.urlsplit(url)
    return parts.hostname or "", parts.port or 0


def served(address: HostPort, show: TlsFiles | None) -> x509.Certificate:
    """Return the certificate that a listener shows now, whether it is valid or not; nothing but a handshake is sent.

    Raises:
        Unreachable: nothing answers there, or without TLS.
    """
    at = address_text(address)
    try:
        with (
            socket.create_connection(address, timeout=ASKED_S) as plain,
            _unverified(show).wrap_socket(plain) as node,
        ):
            found = node.getpeercert(binary_form=True)
    except ssl.SSLError as error:
        raise Unreachable(f"{at}: TLS failed: {tls_reason(error)}") from error
    except OSError as error:
        raise Unreachable(f"{at}: {error.strerror or error}") from error
    assert found is not None, "a server always shows one"
    return x509.load_der_x509_certificate(found)


def is_taken(url: str, show: TlsFiles) -> bool:
    """Answer whether a node takes a client's certificate: one that it does not trust ends the connection.

    Raises:
        Unreachable: nothing answers there.
    """
    host, port = _at(url)
    asked = http.client.HTTPSConnection(host, port, timeout=ASKED_S, context=_unverified(show))
    try:
        asked.connect()
    except ssl.SSLError:
        return False
    except OSError as error:
        raise Unreachable(f"{url}: {error.strerror or error}") from error
    try:
        asked.request("GET", "/healthz")
        return asked.getresponse().status == http.client.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        asked.close()


def _unverified(show: TlsFiles | None) -> ssl.SSLContext:
    """Return a context that looks at any certificate, since one that has ended is to be seen, too. It shows no token."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    harden(context)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if show is not None:
        load(context, show)
    return context


def described(
    certificate: x509.Certificate, authorities: Iterable[x509.Certificate], *, now_s: float
) -> dict[str, Any]:
    """Return what a certificate says; `trusted` is whether one of the authorities issued it, None without any."""
    known = tuple(authorities)
    return {
        "subject": certificate.subject.rfc4514_string(),
        "uri": uri_of(certificate),
        "authority": certificate.issuer.rfc4514_string(),
        "serial": f"{certificate.serial_number:x}",
        "sha256": certificate.fingerprint(hashes.SHA256()).hex(),
        "from": _text(certificate.not_valid_before_utc),
        "until": _text(certificate.not_valid_after_utc),
        "days_left": int((certificate.not_valid_after_utc.timestamp() - now_s) / DAY_S),
        "trusted": None if not known else any(is_issued_by(certificate, each) for each in known),
    }


def is_issued_by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def uri_of(certificate: x509.Certificate) -> str | None:
    """Return the first URI that a certificate names."""
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return None
    uris = names.get_values_for_type(x509.UniformResourceIdentifier)
    return uris[0] if uris else None


def in_files(paths: Iterable[Path]) -> Iterator[tuple[Path, x509.Certificate]]:
    """Yield the certificates of PEM files, and of those in folders.

    Raises:
        InvalidSettings: a file that was named holds none, or cannot be read.
    """
    for path in paths:
        is_folder = path.is_dir()
        files = sorted(one for one in path.iterdir() if one.suffix in PEM_ENDS) if is_folder else [path]
        if not files:
            raise InvalidSettings(f"{path}: no file there ends in {', '.join(sorted(PEM_ENDS))}")
        for file in files:
            try:
                found = x509.load_pem_x509_certificates(file.read_bytes())
            except OSError as error:
                raise InvalidSettings(f"{file}: {error.strerror}") from error
            except ValueError as error:
                raise InvalidSettings(f"{file}: holds no certificate in PEM") from error
            for one in found:
                yield file, one


def is_revoked_beside(file: Path, certificate: x509.Certificate) -> bool | None:
    """Return whether the list of revoked certificates in a file's folder has its certificate; None: there is no list.

    Raises:
        InvalidSettings: the list is none.
    """
    listed = file.parent / REVOKED
    return read_revoked(listed).has(certificate.public_bytes(Encoding.DER)) if listed.exists() else None


def _text(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
