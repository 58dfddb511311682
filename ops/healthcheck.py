"""Edge: what a container asks whether its node lives: `python -m ops.healthcheck DATA_DIR`; exit code 0 if it does.

It asks the process that the data directory names for /healthz, from within: nothing secret is sent, so whom the certificate
names is not looked at. Tests: tests/unit/ops/test_healthcheck.py.
"""

import ssl
import sys
import urllib.request
from pathlib import Path
from typing import Final

from ops.processes import running_process

TIMEOUT_S: Final = 2.0


def fault_of(data: Path) -> str | None:
    """Return why the node of a data directory is not well; None: it answers."""
    process = running_process(data)
    if process is None:
        return f"{data}: no process runs here"
    url = process.get("http")
    if url is None:
        return f"{data}: its process does not listen"
    unverified = ssl._create_unverified_context() if url.startswith("https:") else None  # noqa: S323, SLF001 see above
    try:
        with urllib.request.urlopen(f"{url}/healthz", timeout=TIMEOUT_S, context=unverified) as answer:  # noqa: S310
            status = answer.status
    except OSError as error:
        return f"{url}/healthz: {error}"
    return None if status == 200 else f"{url}/healthz: {status}"


def main(arguments: list[str]) -> int:
    """Print what is wrong, and return the exit code."""
    (data,) = arguments
    fault = fault_of(Path(data))
    if fault is not None:
        print(fault, file=sys.stderr)
    return int(fault is not None)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
