"""Edge: whether a request may come from a web page of somebody else, on controllers and brokers alike.

A browser sends requests of any page to any address that it reaches. What such a page cannot do is choose freely among
these: `Origin` is the page's own on whatever may change something, `Host` is the name by which the browser found this
node, and a body has one of three content types unless the node agrees to another beforehand, which no node here does.
`Sec-Fetch-Site` says whose page asks, also on reads: an image of a foreign page could cost this node a past state.

Source: W3C, Fetch Metadata Request Headers.
"""

import ipaddress
from collections.abc import Iterable
from typing import Final

from aiohttp import hdrs, web

from metadata_log.errors import ForeignCaller, InvalidRequest, UnsupportedMediaType
from metadata_log.node.addresses import WILDCARDS, read_url
from metadata_log.node.http.answers import JSON, MSGPACK

SHOWN_MAX: Final = 200
SITE: Final = "Sec-Fetch-Site"
OWN_SITES: Final = frozenset({"same-origin", "none"})
"""Of the page that asks: this node's own, or none, where a user entered the address. Another port of this host is a foreign
page: "same-site"."""
ONCE: Final = (hdrs.AUTHORIZATION, "X-Request-Id", hdrs.CONTENT_TYPE)
"""Of these, readers take the first, or the last: a proxy, a broker that forwards, and a controller may differ."""
HOSTS_KEPT: Final = 16
"""A client sends the same Host with every request."""
LOOPBACK: Final = "localhost"
READS: Final = frozenset({hdrs.METH_GET, hdrs.METH_HEAD})
SENT_BY_FORMS: Final = frozenset({"text/plain", "application/x-www-form-urlencoded", "multipart/form-data"})
"""What a page may send as without asking this node first."""
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}


class OwnNames:
    """The names under which a node answers: its own, `localhost` and its subdomains, and any numeric address.

    A page whose name was made to point at this node (DNS rebinding) shows itself by that name. A numeric address is no name
    that could be made to point elsewhere.
    """

    def __init__(self, hosts: Iterable[str]) -> None:
        self._hosts = {LOOPBACK, *(host.lower().rstrip(".") for host in hosts if host not in WILDCARDS)}
        self._known: set[str] = set()
        """Host headers that named this node, HOSTS_KEPT at most."""

    def is_own(self, host: str) -> bool:
        """Return whether a Host header, HOST or HOST:PORT, names this node; which port is not looked at."""
        if host in self._known:
            return True
        try:
            name, _ = _host_port(host)
        except ValueError:
            return False
        is_own = name in self._hosts or name.endswith(f".{LOOPBACK}") or _is_numeric(name)
        if is_own:
            if len(self._known) >= HOSTS_KEPT:
                self._known.clear()
            self._known.add(host)
        return is_own

    def check(self, request: web.BaseRequest) -> None:
        """Refuse what a foreign page may have sent, before anything of it is done.

        Raises:
            ForeignCaller: Host is no name of this node, Origin is another one, or a foreign page asks for itself. It may
                lead its reader here.
            InvalidRequest: there is no Host, or several, or another header twice that may be there once.
            UnsupportedMediaType: a body that may change something is neither JSON nor msgpack.
        """
        hosts = request.headers.getall(hdrs.HOST, [])
        if len(hosts) != 1:
            raise InvalidRequest(f"a request has one Host, and this one has {len(hosts)}")
        for name in ONCE:
            count = len(request.headers.getall(name, ()))
            if count > 1:
                raise InvalidRequest(
                    f"a request has one {name} at most, and this one has {count}: which of them counts is not clear"
                )
        if not self.is_own(hosts[0]):
            raise ForeignCaller(
                f"Host {_shown(hosts[0])} is no name of this node: ask by an address that it is configured with, or add "
                "the name to allowed_hosts under [http] in its settings file"
            )
        for origin in request.headers.getall(hdrs.ORIGIN, []):
            if not _is_same(origin, request.scheme, hosts[0]):
                raise ForeignCaller(
                    f"Origin {_shown(origin)}: a web page of another address asks nothing of this node"
                )
        if not is_of_own_page(request) and not _leads_here(request):
            raise ForeignCaller(
                f"{SITE} {_shown(request.headers[SITE])}: a web page of another address asks nothing of this node"
            )
        if request.method in READS:
            return
        content_type = request.content_type
        if (request.body_exists and content_type not in (JSON, MSGPACK)) or content_type in SENT_BY_FORMS:
            sent = _shown(request.headers.get(hdrs.CONTENT_TYPE, "nothing"))
            raise UnsupportedMediaType(f"send {JSON} or {MSGPACK} as Content-Type, not {sent}")


def is_of_own_page(request: web.BaseRequest) -> bool:
    """Return whether a page of this node sent a request, or no page at all; older browsers do not say."""
    site = request.headers.get(SITE)
    return site is None or site in OWN_SITES


def _leads_here(request: web.BaseRequest) -> bool:
    """Return whether a browser shows the answer in place of the page that asks: a link to a console."""
    headers = request.headers
    return (
        request.method in READS
        and headers.get("Sec-Fetch-Mode") == "navigate"
        and headers.get("Sec-Fetch-Dest") == "document"
    )


def _is_same(origin: str, own_scheme: str, host: str) -> bool:
    """Return whether an Origin is the page of the node that Host names, asked with this scheme.

    A page that came in the clear may be forged on its way, so it asks nothing of the same host under TLS. The other way
    round a proxy before the node ended TLS.
    """
    scheme, _, rest = origin.partition("://")
    default = _DEFAULT_PORTS.get(scheme)
    if default is None or (own_scheme == "https" and scheme != own_scheme):
        return False
    try:
        name, port = _host_port(rest)
        own_name, own_port = _host_port(host)
    except ValueError:
        return False
    return (name, port or default) == (own_name, own_port or default)


def _host_port(text: str) -> tuple[str, int | None]:
    """Return the host in lower case, and the port if there is one.

    Raises:
        ValueError: the text is something else.
    """
    ending = text[text.rfind("]") + 1 :]
    if ":" in ending:
        host, port = read_url(f"http://{text}")
    else:
        host, port = read_url(f"http://{text}:0")
    return host.lower().rstrip("."), port or None


def _is_numeric(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _shown(text: str) -> str:
    return ascii(text[:SHOWN_MAX])
