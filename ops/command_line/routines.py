"""Edge: verbs that visit the nodes of a cluster one after the other: what they share.

`roll`, `move`, `certificates rotate` and `certificates revoke` wait for each node, look at the health of the cluster
first, ask before they begin, and show on request what they would do. Tests: tests/unit/ops/verbs/test_roll.py.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ops.command_line.guard import guarded
from ops.command_line.options import Network, Run, flag, network, option, sharing, together
from ops.command_line.values import local_cluster, seconds

if TYPE_CHECKING:
    from ops.admin.cluster import Cluster
    from ops.admin.roll_plan import Node
    from ops.admin.rolling import Rolling

UNSAFE: Final = 10
"""The exit code of a dry run that finds what is unsafe."""
PATIENCE_S: Final = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Routine(Network):
    """Which nodes are visited, how long each wait is, and what does not matter of the cluster's health."""

    local: Path | None = None
    accepted: tuple[str, ...] = ()
    patience: float = PATIENCE_S
    dry_run: bool = False
    yes: bool = False

    def rolling(self, client: "Cluster", restart: "Callable[[Node], None]") -> "Rolling":
        """Return what restarts nodes so, one at a time."""
        from ops.admin.rolling import Rolling

        return Rolling(
            client=client, restart=restart, patience_s=self.patience, accepted=frozenset(self.accepted)
        )


def routine(
    *,
    dry: str,
    local: str,
    patience_s: float = PATIENCE_S,
    accepts: bool = True,
    more_codes: Collection[str] = (),
) -> Callable[[Run], Run]:
    """Declare a verb that visits nodes: it gets `asked`, a Routine.

    `dry` says what a dry run shows, `local` what --local does. Without `accepts` the health is not looked at. --accept
    takes `more_codes` beside those of health.
    """

    def codes() -> set[str]:
        from ops.admin.health import CODES

        return {*CODES, *more_codes}

    def code(text: str) -> str:
        if text not in codes():
            raise ValueError(f"{text!r} is none of {', '.join(sorted(codes()))}")
        return text

    accept = option(
        "--accept",
        "accepted",
        read=code,
        words=codes,
        multiple=True,
        metavar="CODE",
        help="a reason of `quorum health` that does not matter; may be repeated",
    )
    return together(
        option("--local", read=local_cluster, metavar="DIR", help=local),
        *((accept,) if accepts else ()),
        option(
            "--patience",
            read=seconds,
            default=patience_s,
            metavar="DURATION",
            help=f"for each wait; default: {patience_s:g}s",
        ),
        flag("--dry-run", help=dry),
        guarded,
        sharing(Routine),
        network,
    )
