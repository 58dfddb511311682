"""Edge: `bench NAME`: run one of the measurements in ops/bench, which the wheel leaves out."""

import signal
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from ops.command_line import render
from ops.command_line.options import Noun, Output, Run, Verb, argument, option, output, together
from ops.command_line.talk import fail_usage, say

if TYPE_CHECKING:
    from ops.bench.catalog import Bench

NOT_HERE: Final = (
    "the benchmarks (ops/bench) are not in the installed package; they are in the source repository of metaquorum: there, "
    "`./ops/check` installs what they need, and `.venv/bin/metaquorum bench` runs them"
)
_PEER_HELP: Final = {
    False: "measure it in the same run",
    True: "measure it in the same run; tls is our own cluster under TLS",
}


def _verb_of(bench: "Bench") -> Run:
    def run(asked: Output, *, peer: Sequence[str], **sizes: Any) -> int:
        return run_bench(asked, bench, peer, sizes)

    told = f"none: {bench.no_peer}" if bench.no_peer else _PEER_HELP["tls" in bench.peers]
    return option("--peer", multiple=True, choices=bench.peers or ("etcd",), help=told)(
        output(together(*bench.flags)(run))
    )


def _noun() -> Noun | Verb:
    """Return the noun with a verb for each benchmark; where they are not installed, one that says where they are."""
    try:
        from ops.bench.catalog import BENCHES
    except ModuleNotFoundError as error:
        if not str(error.name).startswith("ops.bench"):
            raise
        elsewhere = Verb(_not_here, examples=("bench failover --json",))
        elsewhere.context_settings["ignore_unknown_options"] = True
        return elsewhere
    noun = Noun()
    for bench in BENCHES:
        with_peer = (f"bench {bench.name} --peer {bench.peers[0]} --json",) if bench.peers else ()
        noun.verb(bench.name, bench.does, f"bench {bench.name} --json", *with_peer)(_verb_of(bench))
    return noun


@argument("words", "NAME...", nargs=-1)
def _not_here(*, words: Sequence[str]) -> int:  # noqa: ARG001 whatever is asked of them
    fail_usage(NOT_HERE)


def run_bench(asked: Output, bench: "Bench", peer: Sequence[str], sizes: dict[str, Any]) -> int:
    import asyncio

    from ops.bench.probes import watching
    from ops.python_build import described

    # Python unwinds at SIGINT alone, and in the background of a script not even then: nodes and what they wrote would stay.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    if peer and bench.no_peer:
        say(f"no peer is measured: {bench.no_peer}")
    if bench.peers:
        sizes = {**sizes, "peers": peer}
    with watching() as withheld:
        measured = bench.measure(**sizes)
        result: dict[str, Any] = asyncio.run(measured) if asyncio.iscoroutine(measured) else measured
    result["probes"] |= {**withheld, "python": described()}
    if bench.no_peer:
        result["no_peer"] = bench.no_peer
    asked.show(result, table=lambda: render.fields(_flat("", result)))
    return 0


def _flat(prefix: str, value: Any) -> list[tuple[str, str]]:
    """Return `ours.p50  1.2` lines of nested figures."""
    if not isinstance(value, dict):
        return [(prefix, render.plain(value))]
    return [line for key, item in value.items() for line in _flat(f"{prefix}.{key}" if prefix else key, item)]


NOUN: Final = _noun()
