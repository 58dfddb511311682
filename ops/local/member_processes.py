"""Edge: the processes of a local cluster's nodes: how one is started, started again, and what its end was.
Tests: tests/unit/ops/local/test_cluster.py.
"""

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Final

from metadata_log import limits
from metadata_log.errors import InvalidSettings, Unavailable
from metadata_log.node.disk.durable_files import open_private, renamed_os_errors
from metadata_log.node.identity.ownership import check_folder
from ops.local.layout import BROKER_SHUTDOWN_TIMEOUT_MS, Member, read_cluster_file
from ops.log_format import STREAM_VARIABLE
from ops.processes import is_locked, running_process

STOP_TIMEOUT_S: Final = BROKER_SHUTDOWN_TIMEOUT_MS / 1_000 + limits.STOP_TIMEOUT_MS / 1_000
KAFKA_STOP_TIMEOUT_S: Final = 60.0
"""One of Kafka's brokers first hands over its leaderships, and then closes its logs."""
POLL_S: Final = 0.05
ROOT: Final = Path(__file__).resolve().parents[2]


class NotReady(Unavailable):
    """The cluster did not become ready in time."""

    error, code = "BROKER_NOT_AVAILABLE", 8


def host_of(member: Member, controllers: Iterable[Member]) -> Member:
    """Return the member whose process this one runs in: a controller, or itself."""
    return next((one for one in controllers if one.id == member.process_of), member)


def guest_of(member: Member, brokers: Iterable[Member]) -> Member | None:
    """Return the broker that runs in the process of this controller."""
    if member.role != "controller":
        return None
    return next((one for one in brokers if one.process_of == member.id), None)


def started(
    directory: Path,
    member: Member,
    *,
    guest: Member | None = None,
    code: Path = ROOT,
    environment: Mapping[str, str] | None = None,
) -> "subprocess.Popen[bytes]":
    """Start the process of a node, from the release in `code`; `environment` is added to ours.

    `guest` is the broker that runs in the process of this controller.
    """
    variables = {**os.environ, STREAM_VARIABLE: "none", **(environment or {})}
    # With -P, Python does not import a folder named `ops` from the current directory.
    variables["PYTHONPATH"] = os.pathsep.join(filter(None, (str(code), variables.get("PYTHONPATH"))))
    module = ("ops.kafka",) if member.is_of_kafka else ("ops.cli", member.role, "run", "--config")
    words = [*module, str(directory / member.config)]
    words += [] if guest is None else ["--broker", str(directory / guest.config)]
    file = stderr_of(directory, member)
    with renamed_os_errors(file), open_private(file, "wb") as output:
        return begun(words, variables, output)


def begun(words: Sequence[str], variables: Mapping[str, str], output: IO[bytes]) -> "subprocess.Popen[bytes]":
    """Begin a process of Python with a module and its arguments, and with exactly these variables."""
    return subprocess.Popen(  # noqa: S603 fork and exec: a millisecond
        [sys.executable, "-P", "-m", *words],
        env=variables,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        start_new_session=True,
    )


def restart_member(directory: Path, node_id: int) -> None:
    """Stop one node of a cluster that `up` runs, if it runs, and start it again.

    Raises:
        InvalidSettings: there is no such cluster or node.
        NotReady: the node did not end in time.
    """
    directory = directory.resolve()
    check_folder(directory)
    _, controllers, brokers = read_cluster_file(directory / "cluster.json")
    member = next((one for one in (*controllers, *brokers) if one.id == node_id), None)
    if member is None:
        raise InvalidSettings(f"{directory} has no node {node_id}")
    member = host_of(member, controllers)
    data = directory / member.data
    process = running_process(data)
    if process is not None:
        with suppress(ProcessLookupError):
            os.kill(process["pid"], signal.SIGTERM)
    deadline = time.monotonic() + (KAFKA_STOP_TIMEOUT_S if member.is_of_kafka else STOP_TIMEOUT_S)
    while is_locked(data):
        if time.monotonic() > deadline:
            raise NotReady(f"{member.role} {member.id} did not end")
        time.sleep(POLL_S)
    started(directory, member, guest=guest_of(member, brokers))


def stderr_of(directory: Path, member: Member) -> Path:
    """Return the file into which a node writes what is no log."""
    return directory / f"{member.name}.stderr"


def metaquorum_command() -> str:
    """Return the shell command of this installation."""
    beside = Path(sys.executable).with_name("metaquorum")
    return shlex.quote(str(beside)) if beside.exists() else f"{shlex.quote(sys.executable)} -m ops.cli"


def ended_with(code: int) -> str:
    """Return an exit code for people; a negative one is the signal that ended the process."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"
