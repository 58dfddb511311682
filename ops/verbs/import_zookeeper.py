"""Edge: what `storage import-zookeeper` does: controllers begin with what a Kafka's ZooKeeper ensemble holds.

Tests: tests/unit/ops/verbs/test_import_zookeeper.py.
"""

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from metadata_log.errors import DirectoryInUse, ForeignDirectory, InvalidRequest
from metadata_log.node.clock import unix_ms
from metadata_log.records.features import ELIGIBLE_LEADER_REPLICAS_VERSION
from metadata_log.records.registry import to_json, type_name
from ops.command_line import render
from ops.command_line.options import Output, argument, flag, option, output, together
from ops.command_line.talk import fail_usage, patience, say
from ops.command_line.values import existing_path
from ops.processes import keep_files_private

if TYPE_CHECKING:
    from metadata_log.image.metadata_image import MetadataImage
    from metadata_log.zookeeper.imported import Imported
    from ops.zookeeper import Ensemble
    from quorum.node.config import ControllerSettings


declared: Final = together(
    argument("hosts", "HOST:PORT", read=str),
    option(
        "--config",
        read=existing_path,
        required=True,
        multiple=True,
        metavar="FILE",
        help="of a controller of ours, under the id of Kafka's cluster; repeated, one for each that votes",
    ),
    flag(
        "--dry-run",
        help="print the records, and what would be refused or left out; write nothing, also not in ZooKeeper",
    ),
    flag(
        "--give-back",
        help="instead, delete what an earlier call wrote to ZooKeeper: its brokers may run under it again",
    ),
    output,
)
"""What the verb takes."""


def run_import(asked: Output, *, hosts: str, config: tuple[Path, ...], dry_run: bool, give_back: bool) -> int:
    """Stop nothing and start nothing: what is not stopped yet is refused, and controllers are started afterwards.

    The controller with the lowest id holds `/controller` for all of them.
    """
    from ops.settings import load_controller_settings

    if dry_run and give_back:
        fail_usage("--give-back writes, and --dry-run does not")
    keep_files_private()
    controllers = sorted(map(load_controller_settings, config), key=lambda settings: settings.node_id)
    with _connected(hosts) as ensemble:
        if give_back:
            given = ensemble.give_controller_back(controllers[0].node_id)
            asked.show_fields({"ensemble": hosts, "given_back": given})
            return 0
        if dry_run:
            return _show_trial(asked, hosts, _read(ensemble), controllers)
        _take_over(asked, ensemble, controllers)
    say(
        "start the controllers, then the brokers, each with its KRaft settings, on its own log directories; last of all: "
        f"metaquorum features upgrade {ELIGIBLE_LEADER_REPLICAS_VERSION}=1 (docs/from-zookeeper.md)"
    )
    return 0


@contextmanager
def _connected(hosts: str) -> Iterator["Ensemble"]:
    try:
        from ops.zookeeper import connected
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "kazoo":
            raise
        fail_usage("kazoo is not installed, which this needs: pip install 'metaquorum[zookeeper]'")
    with connected(hosts) as ensemble:
        yield ensemble


def _read(ensemble: "Ensemble", roots: Sequence[str] = ("/",)) -> "Imported":
    from metadata_log.zookeeper.imported import imported

    with patience("the ensemble is being read"):
        return imported(ensemble.nodes(roots), random.SystemRandom())


def _refusals(found: "Imported", controllers: Sequence["ControllerSettings"]) -> list[str]:
    from metadata_log.zookeeper.bridge import refusals
    from quorum.node.beginning import unfit

    first = controllers[0]
    reasons = [*refusals(found, node_id=first.node_id, cluster_id=first.cluster_id)]
    if len({settings.node_id for settings in controllers}) < len(controllers):
        reasons.append("two of the settings are of one controller")
    for settings in controllers:
        reasons += unfit(found.records, settings)
        if (settings.cluster_id, settings.voters) != (first.cluster_id, first.voters):
            reasons.append(
                f"the settings of controllers {first.node_id} and {settings.node_id} differ in cluster_id or [[voters]]"
            )
    return reasons


def _places_refused(found: "Imported", controllers: Sequence["ControllerSettings"]) -> list[str]:
    """Return why the directories of the controllers cannot be made; what lies in them is compared with a call now."""
    from metadata_log.zookeeper.bridge import is_claimed_by
    from ops.takeover.taking_over import check_may_take_over

    if not all(settings.is_listed for settings in controllers):
        return []  # it has no directory id, and is refused already
    held = found.controller is not None and is_claimed_by(found.controller, controllers[0].node_id)
    try:
        check_may_take_over(controllers, _image(found, controllers, found.controller_epoch + (not held)))
    except (InvalidRequest, ForeignDirectory, DirectoryInUse) as refused:
        return [refused.message]
    return []


def _check(hosts: str, found: "Imported", controllers: Sequence["ControllerSettings"]) -> None:
    """Check that a tree may be taken over; the steps come in the order of `bridge.Step`.

    Raises:
        InvalidRequest: its message has all reasons, each with the cure.
    """
    if refused := _refusals(found, controllers):
        reasons = "; ".join(f"({number}) {reason}" for number, reason in enumerate(refused, 1))
        raise InvalidRequest(f"{hosts} is not taken over: {reasons}")


def _take_over(asked: Output, ensemble: "Ensemble", controllers: Sequence["ControllerSettings"]) -> None:
    from metadata_log.zookeeper.bridge import CHECKED_FIRST
    from ops.takeover.taking_over import check_may_take_over, take_over

    node_id = controllers[0].node_id
    _check(ensemble.hosts, before := _read(ensemble, CHECKED_FIRST), controllers)
    held = before.controller is not None
    epoch = ensemble.hold_controller(node_id, unix_ms=unix_ms())
    try:
        # All of it after the claim: what is read before may be changed by a broker that comes and goes meanwhile.
        _check(ensemble.hosts, found := _read(ensemble), controllers)
        image = _image(found, controllers, epoch)
        check_may_take_over(controllers, image)
    except BaseException:
        if not held:
            ensemble.give_controller_back(node_id)
        raise
    with patience("the directories are being written"):
        image = take_over(image, controllers)
    _show_notes(found)
    told = {str(each.node_id): str(each.data_dir) for each in controllers}
    asked.show_fields(_described(image) | _summary(found) | {"controllers": told})


def _image(found: "Imported", controllers: Sequence["ControllerSettings"], epoch: int) -> "MetadataImage":
    from quorum.controller.standby import configured_voters
    from quorum.node.beginning import begun

    first = controllers[0]
    ids = {settings.node_id for settings in controllers}
    voters = [voter for voter in configured_voters(first) if voter.node_id in ids]
    return begun(found.records, settings=first, voters=voters, epoch=epoch, unix_ms=unix_ms())


def _described(image: "MetadataImage") -> dict[str, Any]:
    from metadata_log.digest import digest

    return {
        "cluster_id": image.quorum.cluster_id,
        "end_offset": image.end_offset,
        "controller_epoch": image.controller_epoch,
        "digest": digest(image),
    }


def _summary(found: "Imported") -> dict[str, Any]:
    notes = found.findings
    return {
        **found.counts(),
        "left_out": [f"{path}: {why}" for path, why in notes.left_out],
        "unknown": list(notes.unknown),
    }


def _show_notes(found: "Imported") -> None:
    for path, why in found.findings.left_out:
        say(f"left out: {path}: {why}")
    for path in found.findings.unknown:
        say(f"unknown, and left out with all below it: {path}")


def _show_trial(
    asked: Output, hosts: str, found: "Imported", controllers: Sequence["ControllerSettings"]
) -> int:
    """Print the records that would be written, and say what speaks against it; nothing is written anywhere."""
    records = [{"type": type_name(record), "record": to_json(record)} for record in found.records]
    refused = [*_refusals(found, controllers), *_places_refused(found, controllers)]
    summary = {"ensemble": hosts, "controller_epoch": found.controller_epoch, **_summary(found)}
    answer = {**summary, "refused": refused, "records": records}

    def table() -> str:
        lines = [f"{each['type']} {render.json_line(each['record'])}" for each in records]
        told = {name: value for name, value in summary.items() if name not in ("left_out", "unknown")}
        return "\n".join([*lines, render.fields((name, render.plain(value)) for name, value in told.items())])

    asked.show(answer, table=table)
    _show_notes(found)
    for reason in refused:
        say(f"would be refused: {reason}")
    return 0
