"""Edge: what `storage import-zookeeper` does: a controller begins with what a Kafka's ZooKeeper ensemble holds.

Tests: tests/unit/ops/verbs/test_import_zookeeper.py.
"""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from metadata_log.errors import InvalidRequest
from metadata_log.node.clock import unix_ms
from metadata_log.node.disk.data_directory import Meta, read_meta
from metadata_log.records.features import ELIGIBLE_LEADER_REPLICAS_VERSION
from metadata_log.records.registry import to_json, type_name
from ops import render
from ops.options import Output
from ops.processes import keep_files_private
from ops.talk import fail_usage, say

if TYPE_CHECKING:
    from metadata_log.image.metadata_image import MetadataImage
    from metadata_log.zookeeper.imported import Imported
    from ops.zookeeper import Ensemble
    from quorum.node.config import ControllerSettings


def run_import_zookeeper(asked: Output, *, hosts: str, config: Path, dry_run: bool, give_back: bool) -> int:
    """Stop nothing and start nothing: what is not stopped yet is refused, and the controller is started afterwards."""
    from ops.settings import load_controller_settings

    if dry_run and give_back:
        fail_usage("--give-back writes, and --dry-run does not")
    keep_files_private()
    settings = load_controller_settings(config)
    with _connected(hosts) as ensemble:
        if give_back:
            given = ensemble.give_controller_back(settings.node_id)
            asked.show_fields({"ensemble": hosts, "given_back": given})
            return 0
        if dry_run:
            return _show_trial(asked, hosts, _read(ensemble), settings)
        _take_over(asked, ensemble, settings)
    say(
        f"start controller {settings.node_id}: it is the only voter. Then format the other controllers with "
        "--no-initial-controllers, start them, and add each: metaquorum quorum add-voter --id N. Start the brokers last, "
        "each with its KRaft settings, on its own log directories, and last of all: "
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


def _read(ensemble: "Ensemble") -> "Imported":
    from metadata_log.zookeeper.imported import imported

    return imported(ensemble.nodes(), random.SystemRandom())


def _refusals(found: "Imported", settings: "ControllerSettings") -> list[str]:
    from metadata_log.zookeeper.bridge import refusals
    from quorum.node.beginning import unfit

    return [
        *refusals(found, node_id=settings.node_id, cluster_id=settings.cluster_id),
        *unfit(found.records, settings),
    ]


def _check(hosts: str, found: "Imported", settings: "ControllerSettings") -> None:
    """Check that a tree may be taken over; the steps come in the order of `bridge.Step`.

    Raises:
        InvalidRequest: its message has all reasons, each with the cure.
    """
    if refused := _refusals(found, settings):
        reasons = "; ".join(f"({number}) {reason}" for number, reason in enumerate(refused, 1))
        raise InvalidRequest(f"{hosts} is not taken over: {reasons}")


def _take_over(asked: Output, ensemble: "Ensemble", settings: "ControllerSettings") -> None:
    from quorum.node.restoring import begin_directory, check_may_begin

    meta = read_meta(settings.data_dir, "controller", settings.node_id, settings.cluster_id)
    check_may_begin(settings.data_dir)
    _check(ensemble.hosts, before := _read(ensemble), settings)
    held = before.controller is not None
    epoch = ensemble.hold_controller(settings.node_id, unix_ms=unix_ms())
    try:
        # All over again: what was read before the claim may have been changed since, by a broker that came and went.
        _check(ensemble.hosts, found := _read(ensemble), settings)
        image = _image(found, settings, meta, epoch)
    except BaseException:
        if not held:
            ensemble.give_controller_back(settings.node_id)
        raise
    begin_directory(settings.data_dir, image)
    _show_notes(found)
    asked.show_fields({"data_dir": str(settings.data_dir)} | _described(image) | _summary(found))


def _image(found: "Imported", settings: "ControllerSettings", meta: Meta, epoch: int) -> "MetadataImage":
    from quorum.controller.standby import configured_voters
    from quorum.node.beginning import begun, founded_voter

    voter = founded_voter(settings, configured_voters(settings), meta.directory_id)
    return begun(found.records, settings=settings, voter=voter, epoch=epoch, unix_ms=unix_ms())


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


def _show_trial(asked: Output, hosts: str, found: "Imported", settings: "ControllerSettings") -> int:
    """Print the records that would be written, and say what speaks against it; nothing is written anywhere."""
    records = [{"type": type_name(record), "record": to_json(record)} for record in found.records]
    refused = _refusals(found, settings)
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
