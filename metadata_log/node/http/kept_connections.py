"""Edge: the HTTP connections that a node keeps to other nodes. TLS looks at certificates when a connection begins, and
never again: here a kept connection ends with the certificates that it began with.
"""

import logging
import ssl
from typing import Any, Final
from weakref import WeakSet

from aiohttp import ClientRequest, ClientTimeout, TCPConnector
from aiohttp.connector import Connection
from aiohttp.tracing import Trace

from metadata_log import limits
from metadata_log.node.identity.tls import Tls

log = logging.getLogger(__name__)

ENDED: Final = "a certificate that it began with has expired, or is revoked"


class KeptConnections(TCPConnector):
    """Keeps connections until a certificate of either end expires.

    The next request has a new connection from then on, and also once this node's own files were renewed. A request that is
    under way when a certificate expires fails within TLS_CHECK_S, as a Raft link does; a renewal disturbs none.
    """

    def __init__(self, tls: Tls | None) -> None:
        super().__init__(ssl=True if tls is None else tls.client)
        self._tls = tls
        self._seen: WeakSet[Any] = WeakSet()
        """Transports that a request has had before."""

    async def connect(self, req: ClientRequest, traces: list[Trace], timeout: ClientTimeout) -> Connection:  # noqa: ASYNC109 as aiohttp has it
        """Return a kept connection, or a new one; raises as aiohttp does."""
        while True:
            connection = await super().connect(req, traces, timeout)
            transport: Any = connection.transport
            encrypted = None if transport is None else transport.get_extra_info("ssl_object")
            if self._tls is None or encrypted is None:
                return connection
            if transport not in self._seen:
                # New: the handshake has just judged it, so this ends even where all certificates have expired.
                self._seen.add(transport)
                self._look_later(transport, encrypted, self._tls)
                return connection
            if not _counts_no_longer(self._tls, encrypted) and not self._tls.was_renewed_since(encrypted):
                return connection
            connection.close()

    def _look_later(self, transport: Any, encrypted: ssl.SSLObject, tls: Tls) -> None:
        self._loop.call_later(limits.TLS_CHECK_S, self._look, transport, encrypted, tls)

    def _look(self, transport: Any, encrypted: ssl.SSLObject, tls: Tls) -> None:
        """End a connection in time, whether a request is under way on it or not."""
        if transport.is_closing():
            return
        if _counts_no_longer(tls, encrypted):
            peer = transport.get_extra_info("peername")
            log.warning("connection_ended", extra={"address": peer[0] if peer else None, "reason": ENDED})
            transport.abort()
            return
        self._look_later(transport, encrypted, tls)


def _counts_no_longer(tls: Tls, encrypted: ssl.SSLObject) -> bool:
    return tls.has_ended(encrypted) or tls.is_revoked(encrypted)
