"""Edge: a node comes to other addresses: it is restarted there, and the log and the other controllers know where it is.

How far a move is, the log says: a node that has registered the new addresses is moved. Tests: tests/cluster/test_move.py.
"""

import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from metadata_log.errors import InvalidRequest, NotController
from metadata_log.node.addresses import HostPort, address_text, read_url
from metadata_log.records.features import KRAFT_VERSION
from metadata_log.records.quorum import KAFKA_ENDPOINT, RAFT_ENDPOINT
from ops.admin.cluster import Endpoint
from ops.admin.health import merged_status
from ops.admin.roll_plan import Role
from ops.admin.rolling import NotBack, Rolling, UnsafeStep, wait_until
from ops.admin.survey import survey

NAME_UNKNOWN: Final = "NAME_UNKNOWN"
"""What --accept takes beside the reasons of health: a name that the nodes know, and this machine does not."""
LOOKED_AT_S: Final = 1.0
"""For a connection to the new address: a process that listens there takes it in some milliseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """Where a node is to be reached; None: as it is."""

    role: Role
    id: int
    http: str | None = None
    raft: HostPort | None = None
    kafka: HostPort | None = None

    @property
    def name(self) -> str:
        return f"{self.role} {self.id}"

    @property
    def wanted(self) -> dict[str, HostPort]:
        """The addresses by the names of their endpoints."""
        own = None if self.http is None else read_url(self.http)
        pairs = (("HTTP", own), (RAFT_ENDPOINT, self.raft), (KAFKA_ENDPOINT, self.kafka))
        return {name: address for name, address in pairs if address is not None}

    def present(self, endpoints: list[Endpoint]) -> dict[str, HostPort]:
        """Return where a registration says that the node is reached now, of the wanted endpoints.

        A broker's own endpoint comes first.
        """
        found: dict[str, HostPort] = {one["name"]: (one["host"], one["port"]) for one in endpoints}
        if self.role == "broker" and endpoints:
            found["HTTP"] = endpoints[0]["host"], endpoints[0]["port"]
        return {name: found[name] for name in self.wanted if name in found}

    def lacking(self, endpoints: list[Endpoint]) -> dict[str, HostPort]:
        """Return which of the addresses a registration does not have."""
        found = self.present(endpoints)
        return {name: address for name, address in self.wanted.items() if found.get(name) != address}


@dataclass(frozen=True, slots=True, kw_only=True)
class Moving:
    """How a node is moved: `rolling` restarts it with settings that name its new addresses."""

    rolling: Rolling
    move: Move

    def lacking(self) -> dict[str, HostPort]:
        """Return the addresses that are not registered yet; raises as `present`."""
        return self.move.lacking(self._endpoints())

    def present(self) -> dict[str, HostPort]:
        """Return where the node is reached now, of the endpoints that move.

        Raises:
            InvalidRequest: no such node is registered.
        """
        return self.move.present(self._endpoints())

    def changes(self) -> Iterator[str]:
        """Yield a line for each address that changes: from where, and to where."""
        endpoints = self._endpoints()
        present = self.move.present(endpoints)
        for name, address in self.move.lacking(endpoints).items():
            was = address_text(present[name]) if name in present else "none"
            yield f"{name}: {was} becomes {address_text(address)}"

    def _endpoints(self) -> list[Endpoint]:
        found = self._registered()[self.move.role].get(self.move.id)
        if found is None:
            raise InvalidRequest(f"{self.move.name} is not registered")
        return found

    def check(self) -> None:
        """Check that the new addresses are known, and that no other node and no process is there.

        Raises:
            UnsafeStep: a name is not known here, another node registered an address, or something listens there; or the
                log does not say where voters are.
        """
        self._check_voters_move()
        lacking = self.lacking()
        for host, port in lacking.values():
            try:
                socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            except (OSError, UnicodeError) as error:
                if NAME_UNKNOWN not in self.rolling.accepted:
                    why = getattr(error, "strerror", None) or "it is no name of a host"
                    raise UnsafeStep(
                        f"{host} is not known here ({why}): nodes that do not know it could not reach "
                        f"{self.move.name}. If they do know it, --accept {NAME_UNKNOWN}"
                    ) from error
        for role, nodes in self._registered().items():
            for node_id, endpoints in nodes.items():
                for one in endpoints:
                    at = one["host"], one["port"]
                    if (role, node_id) != (self.move.role, self.move.id) and at in lacking.values():
                        raise UnsafeStep(f"{address_text(at)} is where {role} {node_id} is reached")
        for address in lacking.values():
            try:
                socket.create_connection(address, timeout=LOOKED_AT_S).close()
            except OSError:
                continue
            raise UnsafeStep(
                f"a process listens at {address_text(address)} already: {self.move.name} could not listen there"
            )

    def _check_voters_move(self) -> None:
        if self.move.raft is None and self.move.kafka is None:
            return
        levels = {row["feature"]: row["level"] for row in self.rolling.client.items("/v1/features")}
        if levels.get(KRAFT_VERSION) == 0:
            raise UnsafeStep(
                f"{KRAFT_VERSION} is 0, so the files of the controllers say where each of them is: raise it first "
                f"(metaquorum features upgrade {KRAFT_VERSION}=1)"
            )

    def run(self) -> bool:
        """Move the node, and answer whether it was restarted for that; a node that is there already is only waited for.

        Raises:
            UnsafeStep: it cannot be restarted without harm, or an address is another's; nothing was done.
            NotBack: it did not come back there in time.
        """
        is_due = bool(self.lacking())
        if is_due:
            self.check()
            self.rolling.only(self.move.role, self.move.id)
        wait_until(
            self.rolling.client,
            self._why_not_there,
            NotBack,
            f"{self.move.name} was restarted",
            patience_s=self.rolling.patience_s,
        )
        return is_due

    def _why_not_there(self) -> str | None:
        lacking = self.lacking()
        if lacking:
            at = ", ".join(f"{name} {address_text(address)}" for name, address in lacking.items())
            return f"it has not registered {at}: do its settings name them?"
        if self.move.raft is None:
            return None
        status = merged_status(survey(self.rolling.client))
        if status is None or status["leader_id"] == -1:
            raise NotController("no controller leads now")
        row: Mapping[str, Any] | None = next(
            (one for one in (*status["voters"], *status["observers"]) if one["id"] == self.move.id), None
        )
        if row is None or not row["reachable"]:
            return "the leader has no link to it"
        if row["address"] != address_text(self.move.raft):
            return f"the log says that it is reached at {row['address']}"
        return None

    def _registered(self) -> dict[Role, dict[int, list[Endpoint]]]:
        client = self.rolling.client
        return {
            "controller": {one["controller_id"]: one["endpoints"] for one in client.controllers()},
            "broker": {one["broker_id"]: one["endpoints"] for one in client.brokers()},
        }
