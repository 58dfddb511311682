"""Edge: verbs that visit the nodes of a cluster one after the other: what they share.

`roll`, `move`, `certificates rotate` and `certificates revoke` wait for each node, look at the health of the cluster
first, ask before they begin, and show on request what they would do. Tests: tests/unit/ops/verbs/test_roll.py.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ops.guard import guarded
from ops.options import Network, R, flag, network, option, sharing
from ops.values import local_cluster, seconds

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
) -> Callable[[R], R]:
    """Declare a verb that visits nodes: it gets `asked`, a Routine.

    `dry` says what a dry run shows, `local` what --local does. Without `accepts` the health is not looked at. --accept
    takes `more_codes` beside those of health.
    """

    def code(text: str) -> str:
        from ops.admin.health import CODES

        if text not in CODES and text not in more_codes:
            raise ValueError(f"{text!r} is none of {', '.join(sorted({*CODES, *more_codes}))}")
        return text

    accept = option(
        "--accept",
        "accepted",
        read=code,
        multiple=True,
        metavar="CODE",
        help="a reason of `quorum health` that does not matter; may be repeated",
    )
    options: tuple[Callable[[R], R], ...] = (
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
    )

    def declare(run: R) -> R:
        run = sharing(Routine)(network(run))
        for option_of in reversed(options):
            run = option_of(run)
        return run

    return declare
