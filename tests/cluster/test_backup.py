"""A cluster's state outlives the cluster: a backup begins another one, and one directory of three is enough to go on."""

import json
import shutil
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from metadata_log.ids import uuid_from_text
from metadata_log.node.addresses import HostPort, read_address
from ops.settings import load_controller_settings
from ops.settings_writing import controller_toml
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
    """Return the names of the cluster's settings, but for the one that it was founded with."""
    items = quorum.ask("GET", "/v1/configs?cluster=1").ok()["items"]
    return {row["name"] for row in items} - {"min.insync.replicas"}


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


def listens(address: HostPort) -> bool:
    try:
        socket.create_connection(address, timeout=5).close()
    except OSError:
        return False
    return True


def test_a_recovery_beside_the_old_majority_is_seen_on_both_sides(tmp_path: Path) -> None:
    """C6: no two quorums of one id unseen. Method: the recovered controller runs, and then the lost two come back."""
    with controllers(tmp_path / "c") as quorum:
        cluster = quorum.cluster
        write(quorum, "before")
        for node_id in (1, 2, 3):
            end(quorum, node_id)
        kept, old = tmp_path / "kept", cluster.data(1)
        shutil.move(old, kept)
        config = cluster.directory / cluster.member(1).config
        settings = load_controller_settings(config)
        metaquorum(quorum, "storage", "format", "--config", config)
        fresh = uuid_from_text(json.loads((old / "meta.json").read_bytes())["directory_id"])
        own = tuple(replace(one, directory_id=fresh) if one.id == 1 else one for one in settings.voters)
        config.write_text(controller_toml(replace(settings, voters=own), data_dir=old.name))
        restart(quorum, 2)
        at = read_address(cluster.member(2).raft or "")
        poll_until(lambda: listens(at), deadline_s=60, what="controller 2 listens")
        words = ("backup", "recover", kept, "--config", config)
        metaquorum(quorum, *words, code=2)  # 2 runs
        end(quorum, 2)
        metaquorum(quorum, *words)
        restart(quorum, 1)
        write(quorum, "after")
        restart(quorum, 2)
        restart(quorum, 3)

        def seen() -> bool:
            told = json.loads(metaquorum(quorum, "quorum", "health", "--json", code=None))
            said = [one["detail"] for one in told["reasons"] if one["code"] == "SECOND_QUORUM"]
            by_nodes = {one.partition(":")[0] for one in said} & {f"controller {n}" for n in (1, 2, 3)}
            return "controller 1" in by_nodes and len(by_nodes) > 1 and len(said) > len(by_nodes)

        poll_until(seen, deadline_s=60, what="both sides and the health name the second quorum")


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
