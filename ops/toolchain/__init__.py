"""Edge: the programs of others that run beside us: the Go programs, found or built from pinned modules. `jars.py`: Kafka.

`etcd/`, `etcd_benchmark/`, `prometheus/` and `toxiproxy/` hold one small Go module each: a require line, the checksums
of all it needs, and a blank import that keeps `go mod tidy` from dropping it. They are local modules because `go install`
refuses etcd's server (its go.mod has replace directives) and pins no checksums. A binary is kept under its version:
raising a version builds it again.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from metadata_log.errors import Fault

_MODULES: Final = Path(__file__).resolve().parent
_BUILD_TIMEOUT_S: Final = 900
"""Etcd takes 35 s to compile on two free cores and 3 s to download; a slow network may need minutes."""


class ToolMissing(Fault):
    """A program we need beside us is neither here nor can it be built; the message has the cure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tool:
    name: str
    version: str
    module: str
    package: str
    linker_flags: str
    go_version: str
    tags: str = ""

    @property
    def file_name(self) -> str:
        return f"{self.name}-{self.version}"


_ETCD: Final = _Tool(
    name="etcd",
    version="3.6.16",
    module="etcd",
    package="go.etcd.io/etcd/server/v3",
    linker_flags="",
    go_version="1.26",
)
_TOXIPROXY: Final = _Tool(
    name="toxiproxy-server",
    version="2.5.0",
    module="toxiproxy",
    package="github.com/Shopify/toxiproxy/v2/cmd/server",
    # Without it `-version` and GET /version say "git".
    linker_flags="-X github.com/Shopify/toxiproxy/v2.Version=2.5.0",
    go_version="1.24",
)
_ETCD_BENCHMARK: Final = _Tool(
    name="etcd-benchmark",
    version="3.6.8",  # the newest that the module proxy has of etcd's root module
    module="etcd_benchmark",
    package="go.etcd.io/etcd/v3/tools/benchmark",
    linker_flags="",
    go_version="1.26",
)
_PROMTOOL: Final = _Tool(
    name="promtool",
    version="0.316.0",  # the library's version of Prometheus 3.16
    module="prometheus",
    package="github.com/prometheus/prometheus/cmd/promtool",
    linker_flags="-s -w",
    go_version="1.26",
    tags="remove_all_sd",  # else the clients of a dozen clouds are compiled, for ten minutes
)
_ETCD_OF_DEBIAN: Final = "etcd-debian"


def etcd_binary() -> Path:
    """Return an etcd server: built from our pinned module, or Debian's (3.4) where Go is missing.

    Never one that happens to be on PATH: a benchmark names its peer, so its peer is chosen here.

    Raises:
        ToolMissing: neither Go nor Debian's packages are to be had, or the build failed.
    """
    directory = tools_directory()
    built = directory / _ETCD.file_name
    of_debian = directory / _ETCD_OF_DEBIAN
    if built.exists():
        return built
    if shutil.which("go") is None:
        if of_debian.exists():
            return of_debian
        if shutil.which("apt-get") is not None:
            return _unpack_debian("etcd-server", member="usr/bin/etcd", to=of_debian)
    return _build(_ETCD, directory)


def etcd_benchmark_binary() -> Path:
    """Return etcd's own load generator, which speaks gRPC, built from our pinned module.

    Raises:
        ToolMissing: it cannot be built.
    """
    built = tools_directory() / _ETCD_BENCHMARK.file_name
    return built if built.exists() else _build(_ETCD_BENCHMARK, tools_directory())


def promtool_binary() -> Path:
    """Return Prometheus' promtool, which checks and tests alert rules, built from our pinned module.

    Raises:
        ToolMissing: it cannot be built.
    """
    built = tools_directory() / _PROMTOOL.file_name
    return built if built.exists() else _build(_PROMTOOL, tools_directory())


def toxiproxy_binary() -> Path:
    """Return a toxiproxy server: the one built here, else one on PATH, else build ours from its pinned module.

    Raises:
        ToolMissing: it is neither on PATH nor can it be built (Debian has no package of it).
    """
    built = tools_directory() / _TOXIPROXY.file_name
    if built.exists():
        return built
    found = shutil.which("toxiproxy-server")
    if found is not None:
        return Path(found)
    return _build(_TOXIPROXY, tools_directory())


def version_of(binary: Path) -> str:
    """Return a binary's own version text, in one line."""
    flag = "-version" if binary.name.startswith(_TOXIPROXY.name) else "--version"
    ran = subprocess.run([binary, flag], capture_output=True, text=True, check=True, timeout=10)  # noqa: S603 our own
    return ran.stdout.splitlines()[0]


def tools_directory() -> Path:
    """Return where built tools are kept: `.tools/` of a checkout, else the user's cache."""
    checkout = _MODULES.parents[1]
    if (checkout / "pyproject.toml").is_file():
        return checkout / ".tools"
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "metaquorum" / "tools"


def _build(tool: _Tool, directory: Path) -> Path:
    """Build `tool` under a name of its own and rename it, so that no process finds half a binary."""
    if shutil.which("go") is None:
        raise ToolMissing(
            f"{tool.name} is not here, nor is Go, which builds it: install Go {tool.go_version} or newer"
        )
    directory.mkdir(parents=True, exist_ok=True)
    say(f"building {tool.name} {tool.version} with Go (once, about a minute)")
    with tempfile.TemporaryDirectory(dir=directory) as scratch:
        fresh = Path(scratch, tool.file_name)
        _run(
            [
                *("go", "build", "-trimpath", "-buildvcs=false", "-mod=readonly"),
                *("-tags", tool.tags, "-ldflags", tool.linker_flags, "-o", str(fresh), tool.package),
            ],
            cwd=_MODULES / tool.module,
            # A GOFLAGS or a go.work of the user's could replace what go.sum pins.
            environment={"GOFLAGS": "", "GOWORK": "off"},
            failure=f"cannot build {tool.name} {tool.version}",
        )
        return fresh.replace(directory / tool.file_name)


def _unpack_debian(package: str, *, member: str, to: Path) -> Path:
    """Unpack one file of a Debian package, with lists and caches of our own: the system is left as it is."""
    to.parent.mkdir(parents=True, exist_ok=True)
    say(f"Go is missing: taking {to.name} from Debian's package {package}")
    with tempfile.TemporaryDirectory(dir=to.parent) as scratch:
        for needed in ("lists/partial", "cache/archives/partial"):
            Path(scratch, needed).mkdir(parents=True)
        apt = [
            *(
                "apt-get",
                "-q",
                "-o",
                f"Dir::State::lists={scratch}/lists",
                "-o",
                f"Dir::Cache={scratch}/cache",
            ),
            *("-o", f"APT::Sandbox::User={_user()}"),
        ]
        failure = f"cannot take {package} from Debian; install Go 1.26 or newer (https://go.dev/dl) instead"
        _run([*apt, "update"], cwd=Path(scratch), failure=failure)
        _run([*apt, "download", package], cwd=Path(scratch), failure=failure)
        archive = next(Path(scratch).glob("*.deb"))
        _run(["dpkg", "-x", archive.name, "root"], cwd=Path(scratch), failure=failure)
        return Path(scratch, "root", member).replace(to)


def _user() -> str:
    return "root" if os.geteuid() == 0 else ""


def _run(
    command: Sequence[str], *, cwd: Path, failure: str, environment: Mapping[str, str] | None = None
) -> None:
    """Run a build step with all its talk on stderr: stdout belongs to the verb that needed the tool."""
    try:
        subprocess.run(  # noqa: S603 the commands above, no shell
            command,
            cwd=cwd,
            env={**os.environ, **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=2,
            timeout=_BUILD_TIMEOUT_S,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        raise ToolMissing(f"{failure}: {error}") from error


def say(what: str) -> None:
    """Print what a build does to stderr: stdout belongs to the verb that needed the tool."""
    print(what, file=sys.stderr, flush=True)
