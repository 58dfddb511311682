"""Edge: TLS of a node: one certificate for all its ports and calls, read again when its files change.

Every node of a cluster has a certificate of the cluster's own authority. It names the node by a URI
(`metaquorum://CLUSTER_ID/controller/1`) beside the hosts at which the node is dialled. Clients of HTTP may have one, or a
token; controllers show theirs to each other. A node that calls a controller refuses a server without a controller's.
"""

import asyncio
import logging
import ssl
from asyncio import sslproto
from collections.abc import Callable
from typing import Any, Final

from metadata_log import limits
from metadata_log.errors import InvalidSettings
from metadata_log.node.collector import leave_no_cycle
from metadata_log.node.credentials import CONTROLLERS, TlsFiles, expect, harden, load, states_of, trust

log = logging.getLogger(__name__)

SHUTDOWN_S: Final = 2.0
"""For the other end's last word; then the connection is closed without it."""


class Tls:
    """The contexts of one node; each is changed in place when the files change, so that open ports need no restart."""

    def __init__(self, files: TlsFiles, *, cluster_id: str) -> None:
        """Read the files; `client` and `anonymous` are for calls to controllers of this cluster.

        Raises:
            InvalidSettings: a file is missing, or is something else.
        """
        self._files = files
        self.server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        """Of HTTP: a client may have a certificate, or a token."""
        self.server.verify_mode = ssl.CERT_OPTIONAL
        self.peer_server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        """Of Raft: only who has a certificate gets as far as a handshake."""
        self.peer_server.verify_mode = ssl.CERT_REQUIRED
        self.client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self.peer_client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        """Of Raft: the certificate must name the peer's id, at whatever address."""
        self.peer_client.check_hostname = False
        self.anonymous = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        """For what is forwarded: the certificate is lent to no client."""
        self._states = states_of(files)
        for context in self._with_certificate():
            harden(context)
            load(context, files)
        harden(self.anonymous)
        for context in (*self._with_certificate(), self.anonymous):
            trust(context, files.ca)
        for context in (self.client, self.anonymous):
            expect(context, CONTROLLERS, cluster_id=cluster_id)

    def _with_certificate(self) -> tuple[ssl.SSLContext, ...]:
        return self.server, self.peer_server, self.client, self.peer_client

    async def keep_reloading(self) -> None:
        """Read the files again whenever they changed."""
        while True:
            await asyncio.sleep(limits.TLS_CHECK_S)
            self.look_again()

    def look_again(self) -> None:
        """Read the files if they changed; where they are no pair, the ones before count."""
        try:
            states = states_of(self._files)
            if states == self._states:
                return
            self._files.client()  # all of them are tried before any of them counts
            for context in self._with_certificate():
                load(context, self._files)
            for context in (*self._with_certificate(), self.anonymous):
                trust(context, self._files.ca)
        except InvalidSettings as error:
            log.error("certificates_not_reloaded", extra={"reason": error.message})
            return
        self._states = states
        log.info("certificates_reloaded", extra={"path": str(self._files.certificate)})


class _Encrypted(sslproto.SSLProtocol):
    """One connection's TLS. asyncio's own reads 256 KiB at a time, into a buffer that each connection keeps."""

    max_size = limits.TLS_READ_BYTES

    def __init__(self, *arguments: Any, on_lost: Callable[[], None], **options: Any) -> None:
        self._on_lost = on_lost
        super().__init__(*arguments, **options)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._on_lost()
        leave_no_cycle(self._transport)
        super().connection_lost(exc)


class Encrypting(asyncio.Protocol):
    """A connection just accepted. It is counted, and begins TLS, or is closed before that costs anything.

    `enter` returns what to do when it ends, or None where there are too many.
    """

    def __init__(
        self,
        make: Callable[[], asyncio.BaseProtocol],
        context: ssl.SSLContext,
        enter: Callable[[asyncio.Transport], Callable[[], None] | None],
    ) -> None:
        self._make = make
        self._context = context
        self._enter = enter

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        on_lost = self._enter(transport)
        if on_lost is None:
            transport.abort()
            return
        encrypted = _Encrypted(
            asyncio.get_running_loop(),
            self._make(),
            self._context,
            None,
            server_side=True,
            ssl_handshake_timeout=limits.HTTP_ARRIVAL_MAX_MS / 1000,
            ssl_shutdown_timeout=SHUTDOWN_S,
            on_lost=on_lost,
        )
        transport.set_protocol(encrypted)
        encrypted.connection_made(transport)
