"""Edge: what Python imports first in a broker of a run: by name, controllers are at the broker's own address.

Controllers tell all brokers the same URL, http://localhost:PORT. Behind each broker's own loopback address stand its own
proxies, at those ports. Every address that the process connects to is noted, for the judge of the run.
"""

import os
import socket
import sys
from pathlib import Path
from typing import Any, Final

HOST: Final = os.environ["ROBUSTNESS_BROKER_HOST"]
CONNECTED: Final = Path(os.environ["ROBUSTNESS_BROKER_CONNECTED"])

_getaddrinfo = socket.getaddrinfo
_noted: set[object] = set()


def _getaddrinfo_here(host: Any, *args: Any, **how: Any) -> Any:
    return _getaddrinfo(HOST if host == "localhost" else host, *args, **how)


def _note(event: str, arguments: tuple[Any, ...]) -> None:
    if event != "socket.connect" or arguments[1] in _noted:
        return
    _noted.add(arguments[1])
    with CONNECTED.open("a") as file:
        file.write(f"{arguments[1][0]}\n")


socket.getaddrinfo = _getaddrinfo_here
sys.addaudithook(_note)
