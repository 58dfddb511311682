"""Edge: a roll: nodes are restarted one at a time, each when it is safe, and the next when it is back.

Tests: tests/unit/ops/admin/test_rolling.py, tests/cluster/test_routines.py.
"""

import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from metadata_log.errors import InvalidRequest, NotController, OutcomeUnknown, Rejected, Unavailable
from metadata_log.ids import BrokerId
from metadata_log.image.metadata_image import MetadataImage
from ops.admin.client import ClusterClient
from ops.admin.cluster import Cluster
from ops.admin.health import merged_status
from ops.admin.live_state import live_image, live_options, newer_image
from ops.admin.roll_plan import (
    Node,
    Role,
    View,
    in_order,
    in_sync_on,
    left,
    suffering,
    told,
    why_no_majority,
    why_not_back,
)
from ops.admin.survey import judged, survey

LOOK_AGAIN_S: Final = 0.25
SAY_S: Final = 5.0
"""Between two lines about the same wait."""


class UnsafeStep(Rejected):
    """The next node cannot be restarted without harm; nothing was done to it."""

    error, code = "INVALID_REQUEST", 42


class NotBack(Unavailable):
    """What was waited for did not come in time."""

    error, code = "BROKER_NOT_AVAILABLE", 8


class Rolled(NamedTuple):
    """A node that was restarted, and the time until it was back."""

    role: Role
    id: int
    took_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Rolling:
    """How a roll is done."""

    client: Cluster
    restart: Callable[[Node], None]
    """Stops the node's process in an orderly way, and starts another."""
    patience_s: float
    """For each wait."""
    accepted: frozenset[str]
    """The reasons of a health that is not green which do not matter."""

    def run(self, roles: Collection[Role], *, since: int) -> Iterator[Rolled]:
        """Restart each node that has not registered since an offset, and yield it once it is back.

        Raises:
            UnsafeStep: the next one cannot be restarted without harm.
            NotBack: one did not come back in time.
        """
        image = live_image(self.client)
        while True:
            view = self._seen(image)
            waiting = left(in_order(view, roles), since)
            if not waiting:
                return
            self.client.say(f"{len(waiting)} nodes to restart; {waiting[0].name} is next")
            begun_s = time.monotonic()
            image = self._step(waiting[0], view)
            yield Rolled(waiting[0].role, waiting[0].id, round(time.monotonic() - begun_s, 3))

    def only(self, role: Role, node_id: int) -> Rolled:
        """Restart one node, whenever it registered, and return once it is back; raises as `run`.

        Raises:
            InvalidRequest: no such node is registered.
        """
        view = self._seen(live_image(self.client))
        node = next((one for one in in_order(view, (role,)) if one.id == node_id), None)
        if node is None:
            raise InvalidRequest(f"{role} {node_id} is not registered")
        begun_s = time.monotonic()
        self._step(node, view)
        return Rolled(role, node_id, round(time.monotonic() - begun_s, 3))

    def _seen(self, image: MetadataImage) -> View:
        """Return the cluster as it is now, once it can be seen; raises NotBack."""
        seen: list[View] = []

        def why_not() -> str | None:
            seen.append(self._view(image))
            return None

        self._wait(why_not, NotBack, "the cluster is looked at")
        return seen[0]

    def _view(self, image: MetadataImage) -> View:
        """Return the cluster as it is now, from a state of before.

        Raises:
            NotController: no controller leads.
        """
        status = merged_status(survey(self.client))
        if status is None or status["leader_id"] == -1:
            raise NotController("no controller leads now")
        return View(newer_image(self.client, image), status["leader_id"], status["voters"])

    def _step(self, node: Node, view: View) -> MetadataImage:
        """Restart one node and wait until it is back; return the state then."""
        if not view.is_down(node):
            self._wait(self._why_not_green, UnsafeStep, f"{node.name} is not restarted")
            view = self._seen(view.image)
            if node.role == "broker":
                self._check_partitions(node, view)
            else:
                self._check_majority(node, view)
            if view.leads(node):
                self._transfer(node)
                view = self._seen(view.image)
                self._check_majority(node, view)
        in_sync = in_sync_on(view.image, BrokerId(node.id)) if node.role == "broker" else frozenset()
        self.client.say(f"{node.name}: restarting")
        self.restart(node)
        last = view.image

        def why_not() -> str | None:
            nonlocal last
            now = self._view(last)
            last = now.image
            return why_not_back(now, node, in_sync)

        self._wait(why_not, NotBack, f"{node.name} was restarted")
        return last

    def _check_majority(self, node: Node, view: View) -> None:
        why = why_no_majority(view, node.id)
        if why is not None:
            raise UnsafeStep(f"{node.name} is not restarted: {why}")

    def _check_partitions(self, node: Node, view: View) -> None:
        suffers = suffering(view.image, live_options(self.client), BrokerId(node.id))
        if suffers:
            raise UnsafeStep(f"{node.name} is not restarted: {told(suffers)}", broker_id=node.id)

    def _transfer(self, node: Node) -> None:
        """Have another controller lead."""
        self.client.say(f"{node.name} leads: another one takes over first")
        moved = self.client.write("POST", "/v1/quorum/transfer", {"to": None}, repeatable=False)
        if moved["leader_id"] == node.id:
            raise UnsafeStep(f"{node.name} is not restarted: no other controller takes over")
        self._wait(self._why_not_green, NotBack, f"controller {moved['leader_id']} leads")

    def _why_not_green(self) -> str | None:
        reasons = judged(self.client)["reasons"]
        left = [one for one in reasons if one["code"] not in self.accepted]
        return "; ".join(f"{one['code']}: {one['detail']}" for one in left) or None

    def _wait(self, why_not: Callable[[], str | None], late: type[UnsafeStep | NotBack], what: str) -> None:
        wait_until(self.client, why_not, late, what, patience_s=self.patience_s)


def wait_until(
    client: ClusterClient,
    why_not: Callable[[], str | None],
    late: type[UnsafeStep | NotBack],
    what: str,
    *,
    patience_s: float,
) -> None:
    """Wait until there is no reason left; raise `late` with the last one after the patience."""
    begun_s = said_s = time.monotonic()
    while True:
        try:
            why = why_not()
        except (Unavailable, OutcomeUnknown) as error:
            why = error.message
        if why is None:
            return
        now_s = time.monotonic()
        if now_s - begun_s > patience_s:
            raise late(f"{what}, and after {patience_s:g} s: {why}")
        if now_s - said_s > SAY_S:
            said_s = now_s
            client.say(f"{what}; waiting: {why}")
        time.sleep(LOOK_AGAIN_S)
