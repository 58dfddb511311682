"""Edge: what `quorum add-voter|remove-voter|replace-voter` do; each asks the leader for what its flags leave out.

`quorum.py` lists them; they are a file of its own for its length.
`replace-voter` removes one voter and adds another, each as a committed change. It reads its progress from the quorum
and keeps none here, so it can be run again after any interruption.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, cast

from metadata_log.errors import DuplicateVoter, InvalidRequest, MetadataError, NotCaughtUp, VoterNotFound
from metadata_log.ids import NodeId, uuid_from_text
from metadata_log.limits import VOTER_CAUGHT_UP_MS
from metadata_log.node.addresses import read_address
from metadata_log.wire.commands import Command
from metadata_log.wire.shapes import INT32_MAX
from ops.admin.client import ClusterClient, leader_url
from ops.admin.cluster import Cluster
from ops.admin.dry_run import foresee
from ops.admin.exchange import Unreachable
from ops.admin.health import is_quorum
from ops.command_line.changes import REFUSED, record_lines
from ops.command_line.guard import ask_first, guarded
from ops.command_line.options import Network, R, flag, network, option, patient
from ops.command_line.talk import say
from ops.command_line.values import from_to, uuid_of

LOOK_AGAIN_S: Final = 0.25
LAST_REQUEST_S: Final = 1.0
"""What a request may take at least, however little of the time is left."""
Row = Mapping[str, Any]


_id: Final = option("--id", "node_id", read=from_to(0, INT32_MAX), required=True, metavar="N")
_dry_run: Final = flag("--dry-run", help="check, and show the records; write nothing")


def _directory(whose: str) -> Callable[[R], R]:
    return option("--directory-id", read=uuid_of("directory"), metavar="D", help=f"default: {whose}")


@_id
@_directory("the observer's")
@option("--raft", metavar="HOST:PORT", help="where voters reach it; default: as it says itself")
@_dry_run
@network
def run_add(
    asked: Network, *, node_id: int, directory_id: str | None, raft: str | None, dry_run: bool
) -> int:
    """Let an observer vote."""
    client = asked.client()
    if directory_id is None or raft is None:
        observer = _observer_to_add(_leaders_view(client), node_id, directory_id)
        directory_id, raft = observer["directory_id"], raft or _address(observer)
    answer = _add(client, node_id, directory_id, raft, dry_run=dry_run)
    result = {"id": node_id, "directory_id": directory_id, "raft": raft, "dry_run": dry_run, **answer}
    if dry_run:
        result |= _foreseen(client, [_addition(node_id, directory_id, raft)])
    says = f"controller {node_id} would vote" if dry_run else f"controller {node_id} votes now"
    asked.show(result, table=lambda: f"{says}; {_voters(result)}")
    if not dry_run:
        _say_settings(node_id, directory_id)
    return 0


@_id
@_directory("the voter's")
@_dry_run
@guarded
@network
def run_remove(asked: Network, *, node_id: int, directory_id: str | None, dry_run: bool, yes: bool) -> int:
    """Take a controller's vote."""
    client = asked.client()
    voters = _leaders_view(client)["voters"]
    voter = _row(voters, node_id)
    if voter is None:
        raise VoterNotFound(f"controller {node_id} is no voter")
    what = f"this takes controller {node_id}'s vote"
    if not ask_first(what, lambda: _fewer_voters(len(voters) - 1), yes=yes or dry_run):
        return REFUSED
    if directory_id is None:
        directory_id = voter["directory_id"]
    answer = _remove(client, node_id, directory_id, dry_run=dry_run)
    result = {"id": node_id, "directory_id": directory_id, "dry_run": dry_run, **answer}
    if dry_run:
        result |= _foreseen(client, [_removal(node_id, directory_id)])
    says = f"controller {node_id} {'would vote' if dry_run else 'votes'} no more"
    asked.show(result, table=lambda: f"{says}; {_voters(result)}")
    if not dry_run:
        say(
            "if it runs it goes on without a vote, and may be stopped; take the [[voters]] entry of node "
            f"{node_id} out of the settings files"
        )
    return 0


def _fewer_voters(left: int) -> Iterator[str]:
    if left:
        yield f"{left} voters are left, and the quorum goes on while {left // 2 + 1} of them run"


@_id
@_dry_run
@patient
def run_replace(asked: Network, *, node_id: int, dry_run: bool) -> int:
    """Let the new disk of a controller vote in place of the old one."""
    client, deadline = asked.client(), time.monotonic() + asked.timeout
    step = _wait_for_step(client, node_id, deadline, dry_run=dry_run, removed=None)
    removed, voters = step.remove, step.voters
    if removed is not None:
        if step.add is not None and not dry_run:
            # If the new disk would be refused for good, the quorum must not lose the old disk's vote.
            _add(client, node_id, step.add, step.raft, dry_run=True, replaces=removed)
        voters = _remove(client, node_id, removed, dry_run=dry_run)["voters"]
        if not dry_run:
            say(f"directory {removed} of controller {node_id} votes no more")
            # This change restarted Raft, so wait until the leader is linked to the observer again.
            step = _wait_for_step(client, node_id, deadline, dry_run=dry_run, removed=removed)
    if step.add is not None:
        # A dry run removed nothing: let the leader evaluate the addition as if it had.
        replaces = removed if dry_run else None
        voters = _add(client, node_id, step.add, step.raft, dry_run=dry_run, replaces=replaces)["voters"]
    result = {
        "id": node_id,
        "removed": removed,
        "added": step.add,
        "dry_run": dry_run,
        "voters": voters,
    }
    if dry_run:
        changes: list[Command] = [] if removed is None else [_removal(node_id, removed)]
        changes += [] if step.add is None else [_addition(node_id, step.add, step.raft)]
        result |= _foreseen(client, changes)
    asked.show(result, table=lambda: _replaced(result))
    if not dry_run and step.add is not None:
        _say_settings(node_id, step.add)
    return 0


def _wait_for_step(
    client: Cluster, node_id: int, deadline: float, *, dry_run: bool, removed: str | None
) -> "Step":
    """Return what can be done next in replacing a voter; a dry run waits for nothing.

    Raises:
        VoterNotFound: no controller has or had this id.
        MetadataError: why nothing can be done, when the time is over.
    """
    while True:
        client.timeout_s = max(deadline - time.monotonic(), LAST_REQUEST_S)
        view = _leaders_view(client)
        step = next_step(view, node_id)
        if step.wait is None:
            return step
        _check_is_known(client, view, node_id)
        if dry_run or time.monotonic() >= deadline:
            done = "" if removed is None else f"; directory {removed} votes no more: run this again to go on"
            raise type(step.wait)(step.wait.message + done)
        time.sleep(LOOK_AGAIN_S)


def _check_is_known(client: Cluster, view: Mapping[str, Any], node_id: int) -> None:
    """Refuse an id that no controller has or had: no wait makes it one.

    Raises:
        VoterNotFound: it is none.
    """
    known = {row["id"] for row in (*view["voters"], *view["observers"])}
    if node_id not in known and node_id not in {one["controller_id"] for one in client.controllers()}:
        voters = ", ".join(str(row["id"]) for row in view["voters"])
        raise VoterNotFound(f"no controller {node_id} is known; the voters are {voters}")


class Step(NamedTuple):
    """What comes next in replacing a voter: a directory to remove or to add, or neither: it is done.

    `wait` is why nothing can be done yet, to be raised when the time is over.
    """

    voters: list[dict[str, Any]]
    remove: str | None = None
    add: str | None = None
    raft: str | None = None
    wait: MetadataError | None = None


def next_step(view: Mapping[str, Any], node_id: int) -> Step:
    """Return what to do next, by the leader's view; the new disk must hold the log before the old one's vote goes.

    Raises:
        InvalidRequest: several disks run under this id.
    """
    voters = [{"id": row["id"], "directory_id": row["directory_id"]} for row in view["voters"]]
    voter = _row(view["voters"], node_id)
    old = None if voter is None else voter["directory_id"]
    fresh = [row for row in view["observers"] if row["id"] == node_id and row["directory_id"] != old]
    if len(fresh) > 1:
        listed = ", ".join(row["directory_id"] for row in fresh)
        raise InvalidRequest(
            f"several controllers follow as {node_id}, with directories {listed}: stop all but one"
        )
    if not fresh:
        if voter is not None and voter["reachable"]:
            return Step(voters)
        absent = f"no controller {node_id} with a new disk follows the leader: format its disk and start it"
        return Step(voters, wait=InvalidRequest(absent))
    if voter is not None and _is_caught_up(voter):
        alive = (
            f"voter {node_id} runs on its old disk, {old}, and lacks nothing: stop it, or the other {node_id}"
        )
        return Step(voters, wait=InvalidRequest(alive))
    (observer,) = fresh
    if not _is_caught_up(observer):
        behind = (
            f"controller {node_id} with directory {observer['directory_id']} does not hold the whole log yet"
        )
        return Step(voters, wait=NotCaughtUp(behind))
    return Step(voters, remove=old, add=observer["directory_id"], raft=_address(observer))


def _is_caught_up(row: Row) -> bool:
    ago: int | None = row["last_caught_up_ms_ago"]
    return ago is not None and ago <= VOTER_CAUGHT_UP_MS


def _leaders_view(client: ClusterClient) -> dict[str, Any]:
    answer = client.ask_one(leader_url(client), "/v1/quorum")
    if not answer.ok:
        raise answer.error()
    view = answer.json()
    if not is_quorum(view):
        raise Unreachable(f"{answer.url} answers, but not as a controller does")
    return cast("dict[str, Any]", view)


def _row(rows: Sequence[Row], node_id: int) -> Row | None:
    return next((row for row in rows if row["id"] == node_id), None)


def _observer_to_add(view: Mapping[str, Any], node_id: int, directory_id: str | None) -> Row:
    """Return the one observer that is meant.

    Raises:
        DuplicateVoter: there is none, and a voter has this id.
        InvalidRequest: there is none, or there are several.
    """
    meant: list[Row] = [
        row
        for row in view["observers"]
        if row["id"] == node_id and directory_id in (None, row["directory_id"])
    ]
    if len(meant) == 1:
        return meant[0]
    if meant:
        listed = ", ".join(row["directory_id"] for row in meant)
        raise InvalidRequest(
            f"several controllers follow as {node_id}; name one with --directory-id: {listed}"
        )
    voter = _row(view["voters"], node_id)
    if voter is not None:
        raise DuplicateVoter(
            f"controller {node_id} is a voter already, with directory {voter['directory_id']}"
        )
    raise InvalidRequest(
        f"no such controller {node_id} follows the leader as an observer: format its disk and start it"
    )


def _address(observer: Row) -> str:
    if observer["address"] is None:
        raise InvalidRequest(
            f"where controller {observer['id']} is reached is not known; name it with --raft"
        )
    address: str = observer["address"]
    return address


def _add(
    client: ClusterClient,
    node_id: int,
    directory_id: str,
    raft: str | None,
    *,
    dry_run: bool,
    replaces: str | None = None,
) -> dict[str, Any]:
    body = {"id": node_id, "directory_id": directory_id, "raft": raft, "validate_only": dry_run}
    if replaces is not None:
        body["replaces"] = replaces
    answer: dict[str, Any] = client.write("POST", "/v1/quorum/voters", body)
    return answer


def _remove(client: ClusterClient, node_id: int, directory_id: str, *, dry_run: bool) -> dict[str, Any]:
    query = f"directory_id={directory_id}" + ("&validate_only=true" if dry_run else "")
    answer: dict[str, Any] = client.write("DELETE", f"/v1/quorum/voters/{node_id}?{query}")
    return answer


def _addition(node_id: int, directory_id: str, raft: str | None) -> Command:
    assert raft is not None, "the controller refuses an addition without an address"
    from quorum.decide.quorum import AddVoter

    host, port = read_address(raft)
    return AddVoter(
        voter_id=NodeId(node_id),
        directory_id=uuid_from_text(directory_id),
        host=host,
        port=port,
        validate_only=False,
    )


def _removal(node_id: int, directory_id: str) -> Command:
    from quorum.decide.quorum import RemoveVoter

    return RemoveVoter(
        voter_id=NodeId(node_id), directory_id=uuid_from_text(directory_id), validate_only=False
    )


def _foreseen(client: ClusterClient, changes: Sequence[Command]) -> dict[str, Any]:
    """Return the records of changes that the leader was asked about, whose word on links and progress counts."""
    foreseen = foresee(client, changes)
    return {"end_offset": foreseen.end_offset, "records": foreseen.records}


def _replaced(result: Mapping[str, Any]) -> str:
    node_id, added = result["id"], result["added"]
    if added is None:
        says = f"controller {node_id} is a voter and is reached: nothing to replace"
    else:
        says = f"controller {node_id} {'would vote' if result['dry_run'] else 'votes now'} with directory {added}"
        says += "" if result["removed"] is None else f" in place of {result['removed']}"
    return f"{says}; {_voters(result)}"


def _voters(result: Mapping[str, Any]) -> str:
    """Return a sentence about who votes then, and a line for each record that a dry run foresees."""
    would = "would be" if result["dry_run"] else "are"
    says = f"the voters {would} {', '.join(str(voter['id']) for voter in result['voters'])}"
    return f"{says}\n{record_lines(result['records'])}" if result["dry_run"] else says


def _say_settings(node_id: int, directory_id: str) -> None:
    entry = f'directory_id = "{directory_id}"'
    say(
        f"write {entry} into the [[voters]] entry of node {node_id} in the controllers' files: there the quorum is found"
    )
