"""A cluster's state outlives the cluster: a backup begins another one, and one directory of three is enough to go on."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from metadata_log.ids import uuid_from_text
from ops.settings import controller_toml, load_controller_settings
from tests.cluster.test_voter_commands import (
    end,
    metaquorum,
    observers,
    restart,
    wait_for_voters,
    wait_until_green,
    write,
)
from tests.support.processes import poll_until
from tests.support.wire import Quorum, controllers

pytestmark = pytest.mark.slow


def names(quorum: Quorum) -> set[str]:
    return {row["name"] for row in quorum.ask("GET", "/v1/configs?cluster=1").ok()["items"]}


def begin_again(
    quorum: Quorum, node_id: int, verb: str, source: Path, *, cluster_id: str | None = None
) -> None:
    """Format the directories of all controllers, and let one begin with a state; the others join it."""
    cluster = quorum.cluster
    for member in cluster.controllers:
        data, config = cluster.data(member.id), cluster.directory / member.config
        shutil.rmtree(data)
        settings = load_controller_settings(config)
        settings = replace(settings, cluster_id=cluster_id or settings.cluster_id)
        config.write_text(controller_toml(settings, data_dir=data.name))
        words = () if member.id == node_id else ("--no-initial-controllers",)
        made = json.loads(metaquorum(quorum, "storage", "format", "--config", config, "--json", *words))
        directory_id = uuid_from_text(made["directory_id"])
        voters = tuple(
            replace(voter, directory_id=directory_id) if voter.id == member.id else voter
            for voter in settings.voters
        )
        config.write_text(controller_toml(replace(settings, voters=voters), data_dir=data.name))
    config = cluster.directory / cluster.member(node_id).config
    foreseen = json.loads(
        metaquorum(quorum, "backup", verb, source, "--config", config, "--dry-run", "--json")
    )
    done = json.loads(metaquorum(quorum, "backup", verb, source, "--config", config, "--json"))
    assert done == foreseen | {"written": True}


def wait_for_observer(quorum: Quorum, node_id: int) -> None:
    poll_until(
        lambda: node_id in [found for found, _ in observers(quorum)], deadline_s=60, what=f"{node_id} follows"
    )


def join(quorum: Quorum, first: int) -> None:
    """Start the controllers, of which only one votes, and give the others their votes."""
    everyone = [member.id for member in quorum.cluster.controllers]
    for node_id in everyone:
        restart(quorum, node_id)
    for node_id in everyone:
        if node_id != first:
            wait_for_observer(quorum, node_id)
            metaquorum(quorum, "quorum", "add-voter", "--id", str(node_id), "--timeout", "60s")
    wait_for_voters(quorum, everyone)
    wait_until_green(quorum)


def test_a_backup_begins_a_cluster_of_another_id_and_one_directory_a_cluster_of_the_same(
    tmp_path: Path,
) -> None:
    with controllers(tmp_path / "c") as quorum:
        cluster = quorum.cluster
        everyone = [member.id for member in cluster.controllers]
        write(quorum, "in.the.backup")
        backup = tmp_path / "today.snapshot"
        metaquorum(quorum, "backup", "take", "--to", backup)
        metaquorum(quorum, "backup", "take", "--to", backup, code=2)  # nothing is written over
        metaquorum(quorum, "snapshot", "verify", backup)
        write(quorum, "after.the.backup")
        config = cluster.directory / cluster.member(2).config
        metaquorum(quorum, "backup", "restore", backup, "--config", config, code=2)  # its own cluster

        for node_id in everyone:
            end(quorum, node_id)
        begin_again(quorum, 2, "restore", backup, cluster_id="4L6g3nShT-eMCtK--X86sw")
        join(quorum, 2)
        assert names(quorum) == {"in.the.backup"}
        write(quorum, "in.the.new.cluster")

        for node_id in everyone:
            end(quorum, node_id)
        kept = tmp_path / "kept"
        shutil.copytree(cluster.data(3), kept)
        begin_again(quorum, 1, "recover", kept)
        join(quorum, 1)
        assert names(quorum) == {"in.the.backup", "in.the.new.cluster"}
        assert quorum.ask("GET", "/v1/quorum").ok()["controller_epoch"] > 100_000
