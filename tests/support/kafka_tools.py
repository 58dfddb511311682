"""Edge: Kafka's own tools, all in one JVM for each process with tests: the start of a JVM takes longer than most of them.

Tests: tests/kafka/test_kafka_tools.py.
"""

import atexit
import importlib.util
import logging
import re
import subprocess
import threading
from collections.abc import Mapping
from contextlib import suppress
from functools import cache, partial, reduce
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

from py4j import java_gateway
from py4j.java_gateway import CallbackServerParameters, GatewayParameters, JavaGateway
from py4j.protocol import Py4JJavaError, Py4JNetworkError, get_return_value

from metadata_log.node.disk.data_directory import load_meta
from ops.java_properties import read_properties
from ops.kafka.__main__ import FORMATTED, RELEASE_VARIABLE, format_words
from ops.kafka.java import TOOLS, java_command
from ops.kafka.tools import TIMEOUT_S, ToolFailed
from ops.toolchain.jars import kafka_jars
from tests.support.processes import poll_until

DEADLINE_S: Final = 90.0
UNCAUGHT: Final = 1
"""The exit code of a JVM whose `main` raised."""


def run_tool(name: str, *arguments: str) -> str:
    """Run a tool by the name of Kafka's script, and return what it printed, as `ops.kafka.tools.run_tool` does.

    Raises:
        ToolFailed: its exit code is not 0, or it did not end within TIMEOUT_S.
    """
    code, printed, complained = _jvm().run(TOOLS[name], arguments)
    if code != 0:
        raise ToolFailed(f"{name} {' '.join(arguments)}: exit code {code}: {printed}{complained}")
    return printed


def told_by(wanted: str, name: str, *arguments: str) -> str:
    """Run a tool until the pattern `wanted` is in what it prints, and return that: a broker learns a moment later what a
    controller decided. A tool that fails is run again.
    """
    return poll_until(
        partial(_told, wanted, name, *arguments), deadline_s=DEADLINE_S, what=f"{name} prints {wanted}"
    )


def _told(wanted: str, name: str, *arguments: str) -> str:
    printed = run_tool(name, *arguments)
    return printed if re.search(wanted, printed) else ""


def format_node(config: Path, variables: Mapping[str, str]) -> None:
    """Format the directories of a node of Kafka's newest release that is about to start, unless they are formatted.

    Where that fails, or with another release, the node's own process does it, and tells what is wrong.
    """
    properties = read_properties(config.read_text())
    first = Path(properties["log.dirs"].split(",")[0])
    if RELEASE_VARIABLE not in variables and not (first / FORMATTED).exists():
        words = format_words(load_meta(first.parent).cluster_id, config, variables)
        with suppress(ToolFailed):
            run_tool("kafka-storage", *words)


@cache
def _jvm() -> "_Jvm":
    return _Jvm()


class _Jvm:
    """A JVM that runs `main` of one class after the other. It ends with this process."""

    def __init__(self) -> None:
        command = java_command(kafka_jars(), "py4j.GatewayServer", "--die-on-broken-pipe", "0")
        # At the end of the class path, or the file of Kafka's classes does not fit.
        command[command.index("-cp") + 1] += f":{_py4j()}"
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        assert self._process.stdout is not None
        port = int(self._process.stdout.readline())
        logging.getLogger("py4j").setLevel(logging.CRITICAL)  # it tells of each exit
        self._gateway = JavaGateway(
            gateway_parameters=GatewayParameters(port=port, read_timeout=TIMEOUT_S),
            callback_server_parameters=CallbackServerParameters(
                port=0, daemonize=True, daemonize_connections=True
            ),
        )
        server, here = self._gateway.java_gateway_server, self._gateway.get_callback_server()
        server.resetCallbackClient(server.getCallbackClient().getAddress(), here.get_listening_port())
        self._java = self._gateway.jvm.java
        self._exit = _Exit()
        exits = self._gateway.jvm.org.apache.kafka.common.utils.Exit
        exits.setExitProcedure(self._exit)
        exits.setHaltProcedure(self._exit)
        self._alone = threading.Lock()
        atexit.register(self._gateway.shutdown)

    def run(self, main: str, arguments: tuple[str, ...]) -> tuple[int, str, str]:
        """Return the exit code, and what was written to stdout and stderr."""
        # PySpark makes exceptions its own in all JVMs of this process, with a class that only its own one has.
        with patch.object(java_gateway, "get_return_value", get_return_value):
            return self._run(main, arguments)

    def _run(self, main: str, arguments: tuple[str, ...]) -> tuple[int, str, str]:
        words = self._gateway.new_array(self._java.lang.String, len(arguments))
        for place, word in enumerate(arguments):
            words[place] = word
        with self._alone:
            printed, complained = self._redirected()
            self._exit.codes, raised = [], ""
            try:
                reduce(getattr, main.split("."), self._gateway.jvm).main(words)
            except Py4JNetworkError as error:
                raise ToolFailed(f"{main} did not end within {TIMEOUT_S:g} s, or the JVM ended") from error
            except Py4JJavaError as error:
                raised = f'Exception in thread "main" {error.java_exception.toString()}\n'
            if self._exit.codes:
                # The first one counts: a tool may take its own end for a failure.
                return self._exit.codes[0], str(printed), str(complained)
            return (UNCAUGHT if raised else 0), str(printed), f"{complained}{raised}"

    def _redirected(self) -> tuple[Any, Any]:
        """Let the JVM write to two new buffers of Java's instead of stdout and stderr."""
        java = self._java
        printed, complained = java.io.ByteArrayOutputStream(), java.io.ByteArrayOutputStream()
        java.lang.System.setOut(java.io.PrintStream(printed, True))
        java.lang.System.setErr(java.io.PrintStream(complained, True))
        return printed, complained


class _Exit:
    """Kafka's `Exit.Procedure`, which ends the tool, and not the JVM."""

    class Java:
        """As py4j has it told."""

        implements: Final = ["org.apache.kafka.common.utils.Exit$Procedure"]

    def __init__(self) -> None:
        self.codes: list[int] = []

    def execute(self, code: int, message: str | None) -> None:
        self.codes.append(code)
        raise RuntimeError(message)


def _py4j() -> Path:
    spark = importlib.util.find_spec("pyspark")
    assert spark is not None and spark.submodule_search_locations
    return next(Path(spark.submodule_search_locations[0], "jars").glob("py4j-*.jar"))
