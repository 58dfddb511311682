"""Edge: toxiproxy between all nodes and clients: one proxy for each link, and the faults that a link can have.

    raft-A-B     from voter A to voter B when A has dialled, both directions; raft-B-A is the other half of that pair
    peers-A      from controllers that fetch snapshots or pieces of the log to controller A's HTTP
    broker-B-A   from broker B to controller A's HTTP: at the port of peers-A, and at an address that is B's alone
    clients-A    from the run's own clients to controller A's HTTP

The Python client of toxiproxy knows one server a process and puts names into its paths as they are, so names here are
plain; it cannot change a toxic, so a link has one fault at a time, and a healed link is closed and opened again.
"""

import random
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import toxiproxy

from metadata_log.node.addresses import address_text, read_address
from ops.toolchain import toxiproxy_binary
from tests.support.processes import free_port, poll_until

LinkFault = dict[str, Any]
"""Arguments of a toxic; {} closes the link."""

CUT: Final[LinkFault] = {}
BLACK_HOLE: Final[LinkFault] = {"type": "timeout", "attributes": {"timeout": 0}}
RESET: Final[LinkFault] = {"type": "reset_peer", "attributes": {"timeout": 0}}


def latency(rng: random.Random) -> LinkFault:
    return {"type": "latency", "attributes": {"latency": rng.randint(20, 300), "jitter": rng.randint(0, 100)}}


def bandwidth(rng: random.Random) -> LinkFault:
    return {"type": "bandwidth", "attributes": {"rate": rng.randint(2, 50)}}


def slicer(rng: random.Random) -> LinkFault:
    return {
        "type": "slicer",
        "attributes": {
            "average_size": rng.randint(10, 200),
            "size_variation": 5,
            "delay": rng.randint(10, 1_000),
        },
    }


def limit_data(rng: random.Random) -> LinkFault:
    return {"type": "limit_data", "attributes": {"bytes": rng.randint(100, 20_000)}}


class Proxies:
    """A toxiproxy server and its proxies; entered, it runs."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._server: subprocess.Popen[bytes] | None = None
        self._api = toxiproxy.Toxiproxy()
        self._proxies: dict[str, Any] = {}
        self._faulty: set[str] = set()

    def __enter__(self) -> Self:
        port = free_port()
        self._api.update_api_consumer("127.0.0.1", port)
        with self._log.open("wb") as output:
            self._server = subprocess.Popen(
                [str(toxiproxy_binary()), "-host", "127.0.0.1", "-port", str(port)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        poll_until(self._api.running, deadline_s=60, what="toxiproxy answers")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.kill()
        self._server.wait()

    def address(
        self, name: str, upstream: tuple[str, int], *, listen: tuple[str, int] = ("127.0.0.1", 0)
    ) -> tuple[str, int]:
        """Return where the named proxy listens; it is made when first asked for. Port 0: any."""
        if name not in self._proxies:
            self._proxies[name] = self._api.create(
                upstream=address_text(upstream),
                name=name,
                listen=address_text(listen),
                enabled=True,
            )
        return read_address(self._proxies[name].listen)

    def names(self, prefix: str) -> list[str]:
        return sorted(name for name in self._proxies if name.startswith(prefix))

    def harm(
        self, name: str, fault: LinkFault, *, streams: tuple[str, ...] = ("upstream", "downstream")
    ) -> bool:
        """Give a link a fault; False: it has one already."""
        if name in self._faulty:
            return False
        self._faulty.add(name)
        proxy = self._proxies[name]
        if not fault:
            proxy.disable()
        for stream in streams if fault else ():
            proxy.add_toxic(**fault, stream=stream, name=stream)
        return True

    def heal(self, name: str) -> None:
        """Make a link sound; its connections end."""
        proxy = self._proxies[name]
        for toxic in proxy.toxics():
            proxy.destroy_toxic(toxic)
        proxy.disable()
        proxy.enable()
        self._faulty.discard(name)
