"""Pure: a broker's settings, frozen, and how they must relate to each other."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import Final

from metadata_log import limits
from metadata_log.errors import InvalidSettings
from metadata_log.ids import BrokerId
from metadata_log.node.addresses import PORT_MAX, WILDCARDS, HostPort, address_text, is_reachable
from metadata_log.node.audit_settings import BOUNDS as OF_AUDIT
from metadata_log.node.audit_settings import AuditSettings
from metadata_log.node.identity.credentials import TlsFiles
from metadata_log.records.brokers import SSL_PROTOCOL, BrokerEndpoint
from metadata_log.wire.shapes import INT32_MAX

LISTENER_NAME: Final = "PLAINTEXT"
"""Kafka's name of its default listener, here of the broker's own endpoint; security_protocol 0."""
SECURITY_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
"""Kafka's, each at its number."""
_DAY_MS: Final = 24 * 3600 * 1000
BOUNDS: Final[Mapping[str, tuple[int, int]]] = {
    "broker_id": (0, INT32_MAX),
    "registration_timeout_ms": (1, _DAY_MS),
    "shutdown_timeout_ms": (1, _DAY_MS),
    **OF_AUDIT,
}
"""The least and the most of each number, by its key in a settings file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSettings:
    """`controllers` are URLs without a trailing slash; `listen_http` is where this process listens.

    Clients are told `advertised_http`, or `listen_http` without one, and the `advertised_listeners` of the host program.
    Inside another program the port to listen on may be 0: any free one.
    """

    cluster_id: str
    broker_id: BrokerId
    data_dir: Path
    controllers: tuple[str, ...]
    listen_http: HostPort
    advertised_http: HostPort | None = None
    advertised_listeners: tuple[BrokerEndpoint, ...] = ()
    allowed_hosts: tuple[str, ...] = ()
    """Further names by which clients may ask for this broker."""
    tls: TlsFiles | None = None
    """None: everything passes in the clear, which a settings file must say (`insecure = true`)."""
    principals: Path | None = None
    """The file of principals; None: everybody may do everything, which a settings file must say (`insecure = true`)."""
    token_file: Path | None = None
    """Holds the bearer token with which this broker asks the controllers."""
    rack: str | None = None
    registration_timeout_ms: int = limits.REGISTRATION_TIMEOUT_MS
    """How long to wait for another process of this broker id to end."""
    shutdown_timeout_ms: int = limits.SHUTDOWN_TIMEOUT_MS
    """How long a stopping broker waits for its leaderships to move away."""
    audit: AuditSettings = field(default_factory=AuditSettings)

    def validate(self) -> None:
        """Check each setting and how they relate.

        Raises:
            InvalidSettings: its message names the first setting that is wrong.
        """
        if len(self.cluster_id) != 22:
            raise InvalidSettings(
                f"cluster_id = {self.cluster_id!r} is no cluster id: 22 characters are needed"
            )
        if not 1 <= len(self.controllers) <= limits.CONTROLLERS_MAX:
            raise InvalidSettings(f"controllers: 1 to {limits.CONTROLLERS_MAX} URLs are needed")
        if len(set(self.controllers)) != len(self.controllers):
            raise InvalidSettings("controllers: a URL stands there twice")
        for url in self.controllers:
            if not url.startswith(("http://", "https://")) or url.endswith("/"):
                raise InvalidSettings(
                    f"controllers: {url!r} is no http:// or https:// URL without trailing slash"
                )
            if self.tls is not None and not url.startswith("https://"):
                raise InvalidSettings(f"controllers: {url!r}: wanted https://HOST:PORT, as there is [tls]")
        self._check_addresses()
        if self.rack is not None and not 1 <= len(self.rack.encode()) <= limits.TEXT_BYTES_MAX:
            raise InvalidSettings(
                f"rack: leave it out, or give it 1 to {limits.TEXT_BYTES_MAX} bytes of text"
            )
        for name, (least, most) in BOUNDS.items():
            value = attrgetter(name)(self)
            if not least <= value <= most:
                raise InvalidSettings(f"{name} = {value} is outside {least} to {most}")

    def _check_addresses(self) -> None:
        host, port = self.listen_http
        if not 0 <= port <= PORT_MAX or not (host or self.advertised_http):
            raise InvalidSettings(f"listen.http = {host}:{port} is no host and port")
        if self.advertised_http is None:
            if host in WILDCARDS:
                raise InvalidSettings(
                    f"listen.http = {address_text(self.listen_http)}: clients are told this address; name one they can "
                    "reach, or set advertised.http"
                )
        elif not is_reachable(self.advertised_http):
            raise InvalidSettings(
                f"advertised.http = {address_text(self.advertised_http)}: wanted a HOST:PORT that others can reach"
            )
        elif self.advertised_http[0] == host and port not in {0, self.advertised_http[1]}:
            raise InvalidSettings(
                f"listen.http is port {port}, but advertised.http tells clients port {self.advertised_http[1]}"
            )
        names = {LISTENER_NAME if self.tls is None else "SSL"}
        for endpoint in self.advertised_listeners:
            where = f"advertised.listeners.{endpoint.name}"
            if not 1 <= len(endpoint.name.encode()) <= limits.TEXT_BYTES_MAX:
                raise InvalidSettings(f"{where}: a listener's name has 1 to {limits.TEXT_BYTES_MAX} bytes")
            if endpoint.name in names:
                raise InvalidSettings(f"{where}: this name stands for another listener already")
            if not is_reachable((endpoint.host, endpoint.port)):
                raise InvalidSettings(f"{where}: wanted a HOST:PORT that others can reach")
            names.add(endpoint.name)
        if len(names) > limits.LIST_ITEMS_MAX:
            raise InvalidSettings(
                f"advertised.listeners: {limits.LIST_ITEMS_MAX - 1} at most, not {len(names) - 1}"
            )

    @property
    def own_hosts(self) -> tuple[str, ...]:
        """The names by which clients may ask for this broker, numeric addresses and `localhost` aside."""
        advertised = () if self.advertised_http is None else (self.advertised_http[0],)
        return (self.listen_http[0], *advertised, *self.allowed_hosts)

    def endpoints(self, bound_port: int) -> tuple[BrokerEndpoint, ...]:
        """Return what the broker registers: its own endpoint first; `bound_port` is the port it listens on."""
        host, port = self.advertised_http or (self.listen_http[0], bound_port)
        name, protocol = (LISTENER_NAME, 0) if self.tls is None else ("SSL", SSL_PROTOCOL)
        return (BrokerEndpoint(name, host, port, protocol), *self.advertised_listeners)
