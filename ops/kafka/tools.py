"""Edge: Kafka's own tools, each in a JVM that lives for some seconds. Tests: tests/kafka/test_real_brokers.py."""

import subprocess
from typing import Final

from metadata_log.errors import Unavailable
from ops.kafka.java import TOOLS, java_command
from ops.toolchain.jars import kafka_jars

TIMEOUT_S: Final = 240.0


class ToolFailed(Unavailable):
    """One of Kafka's tools ended with an error; the message has all that it said."""

    error, code = "INVALID_REQUEST", 42


def run_tool(name: str, *arguments: str) -> str:
    """Run a tool by the name of Kafka's script, and return what it printed.

    Raises:
        ToolFailed: its exit code is not 0, or it did not end within TIMEOUT_S.
    """
    command = java_command(kafka_jars(), TOOLS[name], *arguments)
    try:
        ran = subprocess.run(  # noqa: S603 no shell
            command,
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
            timeout=TIMEOUT_S,
        )
    except subprocess.TimeoutExpired as error:
        raise ToolFailed(
            f"{name} did not end within {TIMEOUT_S:g} s: {error.stdout!r} {error.stderr!r}"
        ) from error
    if ran.returncode != 0:
        raise ToolFailed(
            f"{name} {' '.join(arguments)}: exit code {ran.returncode}: {ran.stdout}{ran.stderr}"
        )
    return ran.stdout
