"""Pure: a broker's settings, frozen, and how they must relate to each other."""

from dataclasses import dataclass
from pathlib import Path

from metadata_log import limits
from metadata_log.errors import InvalidSettings
from metadata_log.ids import BrokerId
from metadata_log.node.addresses import PORT_MAX, WILDCARDS, HostPort, address_text
from metadata_log.records.brokers import BrokerEndpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSettings:
    """`controllers` are URLs without a trailing slash; `listen_http` is the address for clients.

    `advertised_listeners` are the further endpoints of a host program.

    Inside another program the port may be 0: any free one.
    """

    cluster_id: str
    broker_id: BrokerId
    data_dir: Path
    controllers: tuple[str, ...]
    listen_http: HostPort
    advertised_listeners: tuple[BrokerEndpoint, ...] = ()
    rack: str | None = None
    registration_timeout_ms: int = limits.REGISTRATION_TIMEOUT_MS
    """How long to wait for another process of this broker id to end."""
    shutdown_timeout_ms: int = limits.SHUTDOWN_TIMEOUT_MS
    """How long a stopping broker waits for its leaderships to move away."""

    def validate(self) -> None:
        """Check each setting and how they relate.

        Raises:
            InvalidSettings: its message names the first setting that is wrong.
        """
        if len(self.cluster_id) != 22:
            raise InvalidSettings(
                f"cluster_id = {self.cluster_id!r} is no cluster id: 22 characters are needed"
            )
        if not 0 <= self.broker_id < 2**31:
            raise InvalidSettings(f"broker_id = {self.broker_id} is outside 0 to {2**31 - 1}")
        if not 1 <= len(self.controllers) <= limits.CONTROLLERS_MAX:
            raise InvalidSettings(f"controllers: 1 to {limits.CONTROLLERS_MAX} URLs are needed")
        if len(set(self.controllers)) != len(self.controllers):
            raise InvalidSettings("controllers: a URL stands there twice")
        for url in self.controllers:
            if not url.startswith(("http://", "https://")) or url.endswith("/"):
                raise InvalidSettings(
                    f"controllers: {url!r} is no http:// or https:// URL without trailing slash"
                )
        host, port = self.listen_http
        if not host or not 0 <= port <= PORT_MAX:
            raise InvalidSettings(f"listen.http = {host}:{port} is no host and port")
        if host in WILDCARDS:
            raise InvalidSettings(
                f"listen.http = {address_text(self.listen_http)}: clients are told this address; name one they can reach"
            )
        if self.rack is not None and not 1 <= len(self.rack.encode()) <= limits.TEXT_BYTES_MAX:
            raise InvalidSettings(
                f"rack: leave it out, or give it 1 to {limits.TEXT_BYTES_MAX} bytes of text"
            )
        for name in ("registration_timeout_ms", "shutdown_timeout_ms"):
            if not 1 <= getattr(self, name) <= 24 * 3600 * 1000:
                raise InvalidSettings(f"{name} = {getattr(self, name)} is outside 1 ms to one day")
