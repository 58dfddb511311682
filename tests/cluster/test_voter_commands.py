"""Voters come and go in a cluster of real processes, by the commands that the runbook names."""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
from contextlib import redirect_stdout
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from metadata_log.ids import NodeId
from ops import cli
from ops.settings import load_controller_settings
from ops.settings_writing import controller_toml
from tests.support.active import is_old
from tests.support.processes import free_ports, poll_until, running
from tests.support.verbs import run_verb
from tests.support.wire import NO_ANSWER, Quorum, ask, controllers, very_calm

pytestmark = pytest.mark.slow
DEADLINE_S = 60.0
UNAVAILABLE = 4


def metaquorum(quorum: Quorum, *words: str | Path, code: int | None = 0) -> str:
    """Run a verb against the cluster and return what it said on stdout; `code` None takes any exit code.

    Where it changed nothing because somebody was unavailable (a follower was late, say), or a follower answered, it is run
    again.
    """

    def ran() -> "subprocess.CompletedProcess[str] | None":
        at = {"METAQUORUM_BOOTSTRAP": ",".join(quorum.cluster.bootstrap)}
        ended = run_verb(*words, variables=at, timeout_s=3 * DEADLINE_S)
        assert "Traceback" not in ended.stderr
        is_late = ended.returncode == UNAVAILABLE or is_old(ended.stderr)
        return None if code is not None and is_late else ended

    ended = poll_until(ran, deadline_s=DEADLINE_S, what=f"{words} finds who can answer")
    assert ended is not None
    assert code in (None, ended.returncode), (ended.returncode, ended.stdout, ended.stderr)
    return ended.stdout


def status(quorum: Quorum) -> dict[str, Any]:
    """Return what `quorum status` says while somebody leads: it finds controllers that came later, too."""

    def led() -> dict[str, Any] | None:
        with redirect_stdout(StringIO()) as printed:
            code = cli.main(["quorum", "status", "--json", "--bootstrap", ",".join(quorum.cluster.bootstrap)])
        told: dict[str, Any] | None = json.loads(printed.getvalue()) if code == 0 else None
        return None if told is None or told["leader_id"] == -1 else told

    return poll_until(led, deadline_s=DEADLINE_S, what="somebody leads") or {}


def wait_until_green(quorum: Quorum) -> None:
    metaquorum(quorum, "quorum", "health", "--wait", "--for", "120s", "--expect-brokers", "0")


def write(quorum: Quorum, name: str) -> None:
    metaquorum(quorum, "configs", "set", "--cluster", f"{name}=1", "--timeout", "60s")


def restart(quorum: Quorum, node_id: int) -> None:
    asyncio.run(quorum.cluster.start_one(node_id))


def end(quorum: Quorum, node_id: int, number: signal.Signals = signal.SIGKILL) -> None:
    quorum.cluster.signal(node_id, number)
    poll_until(
        lambda: quorum.cluster.exit_code(node_id) is not None, deadline_s=DEADLINE_S, what=f"{node_id} ends"
    )


def observers(quorum: Quorum) -> list[tuple[int, str]]:
    """Return who follows without a vote, and has held the leader's whole log."""
    return [
        (row["id"], row["directory_id"])
        for row in status(quorum)["observers"]
        if row["last_caught_up_ms_ago"] is not None
    ]


def wait_for_voters(quorum: Quorum, wanted: list[int]) -> None:
    poll_until(
        lambda: [voter["id"] for voter in status(quorum)["voters"]] == wanted,
        deadline_s=DEADLINE_S,
        what=f"{wanted} vote",
    )


def test_the_leaders_disk_is_replaced_as_the_runbook_says(tmp_path: Path) -> None:
    """The old disk, should it turn up again, has no vote any more; no command makes it a voter beside the new one."""
    with controllers(tmp_path / "c") as quorum:
        cluster = quorum.cluster
        write(quorum, "before")
        lost = status(quorum)["leader_id"]
        replace_voter = ("quorum", "replace-voter", "--id", str(lost))
        config, data, kept = (
            cluster.directory / cluster.member(lost).config,
            cluster.data(lost),
            tmp_path / "kept",
        )
        assert "nothing to replace" in metaquorum(quorum, *replace_voter)

        end(quorum, lost)
        data.rename(kept)
        metaquorum(quorum, *replace_voter, "--dry-run", code=3)  # nobody follows in its place yet
        formatted = json.loads(metaquorum(quorum, "storage", "format", "--config", config, "--json"))
        restart(quorum, lost)
        fresh = formatted["directory_id"]
        poll_until(lambda: (lost, fresh) in observers(quorum), deadline_s=DEADLINE_S, what="it follows")

        def lacks_a_voter() -> bool:
            judged = json.loads(metaquorum(quorum, "quorum", "health", "--json", code=None))
            return judged["health"] == "yellow" and "NOT_A_VOTER" in {r["code"] for r in judged["reasons"]}

        poll_until(lacks_a_voter, deadline_s=DEADLINE_S, what="the quorum is yellow, as it lacks a voter")
        write(quorum, "meanwhile")

        planned = json.loads(metaquorum(quorum, *replace_voter, "--dry-run", "--json"))
        assert planned["removed"] == cluster.member(lost).directory_id
        assert {voter["id"]: voter["directory_id"] for voter in planned["voters"]}[lost] == fresh
        done = json.loads(metaquorum(quorum, *replace_voter, "--json"))
        foreseen = {key: planned.pop(key) for key in ("end_offset", "records")}
        assert {**done, "dry_run": True} == planned
        dumped = map(
            json.loads,
            metaquorum(
                quorum, "log", "dump", "--from", str(foreseen["end_offset"]), "-o", "jsonl"
            ).splitlines(),
        )
        changes = [{"type": each["type"], **each["record"]} for each in dumped if each["type"] == "Voters"]
        assert changes == foreseen["records"], "the dry run showed what was written"
        wait_until_green(quorum)
        assert "nothing to replace" in metaquorum(quorum, *replace_voter)
        metaquorum(quorum, "quorum", "transfer", "--to", str(lost))
        write(quorum, "after")

        end(quorum, lost)
        data.rename(tmp_path / "fresh")
        kept.rename(data)
        restart(quorum, lost)
        old = cluster.member(lost).directory_id
        poll_until(
            lambda: (lost, old) in observers(quorum), deadline_s=DEADLINE_S, what="the old disk follows"
        )
        write(quorum, "beside")
        metaquorum(quorum, "quorum", "add-voter", "--id", str(lost), code=3)

        end(quorum, lost)
        data.rename(kept)
        (tmp_path / "fresh").rename(data)
        restart(quorum, lost)
        wait_until_green(quorum)
        settings = {row["name"] for row in quorum.ask("GET", "/v1/configs?cluster=1").ok()["items"]}
        assert settings == {"min.insync.replicas", "before", "meanwhile", "after", "beside"}


def test_a_fourth_controller_comes_and_the_leader_goes(tmp_path: Path) -> None:
    """Its own settings do not list it; it is found by a list that does not either; a restart of all changes nothing."""
    with controllers(tmp_path / "c") as quorum:
        cluster = quorum.cluster
        sample = load_controller_settings(cluster.directory / cluster.member(1).config)
        http, raft = free_ports(2)
        fourth = replace(
            sample,
            node_id=NodeId(4),
            data_dir=cluster.directory / "controller-4",
            listen_http=("127.0.0.1", http),
            listen_raft=("127.0.0.1", raft),
        )
        config = cluster.directory / "controller-4.toml"
        config.write_text(controller_toml(fourth, data_dir="controller-4"))
        metaquorum(quorum, "storage", "format", "--config", config)
        command: list[str | Path] = [sys.executable, "-m", "ops.cli", "controller", "run", "--config", config]
        here = {"PYTHONPATH": os.pathsep.join(sys.path), "METAQUORUM_LOG": "none"}
        with running(
            command,
            directory=cluster.directory,
            env=here,
            ready=lambda: [node_id for node_id, _ in observers(quorum)] == [4],
            deadline_s=DEADLINE_S,
        ) as child:
            metaquorum(quorum, "quorum", "add-voter", "--id", "4", "--timeout", "60s")
            metaquorum(quorum, "quorum", "add-voter", "--id", "4", code=3)
            leader = status(quorum)["leader_id"]
            metaquorum(quorum, "quorum", "remove-voter", "--id", str(leader), "--yes", "--timeout", "60s")
            left = [node_id for node_id in (1, 2, 3, 4) if node_id != leader]
            wait_for_voters(quorum, left)
            poll_until(
                lambda: [node_id for node_id, _ in observers(quorum)] == [leader],
                deadline_s=DEADLINE_S,
                what="the leader of before follows without a vote",
            )
            metaquorum(quorum, "quorum", "transfer", "--to", "4", "--timeout", "60s")
            write(quorum, "under.the.fourth")
            assert status(quorum)["leader_id"] == 4

            for node_id in (1, 2, 3):
                end(quorum, node_id)
            for node_id in (1, 2, 3):
                restart(quorum, node_id)
            write(quorum, "after.a.restart")
            wait_for_voters(quorum, left)
            end(quorum, left[0])
            write(quorum, "two.of.three")  # one of them the fourth; who was removed does not count
            restart(quorum, left[0])
            child.signal(signal.SIGTERM)
            assert child.wait(deadline_s=DEADLINE_S) == 0
            write(quorum, "without.the.fourth")


def test_the_last_working_majority_cannot_be_removed(tmp_path: Path) -> None:
    with controllers(tmp_path / "c") as quorum:
        leader = status(quorum)["leader_id"]
        down, other = (node_id for node_id in (1, 2, 3) if node_id != leader)
        end(quorum, down)
        # An idle link is found dead at once, a stale "caught up" within a second.
        for unwise in (other, leader):
            metaquorum(quorum, "quorum", "remove-voter", "--id", str(unwise), "--dry-run", code=3)
            metaquorum(quorum, "quorum", "remove-voter", "--id", str(unwise), "--yes", code=3)
        metaquorum(quorum, "quorum", "remove-voter", "--id", str(down), "--yes")
        wait_for_voters(quorum, sorted([leader, other]))
        write(quorum, "on")


def test_settings_edited_in_part_keep_no_founded_quorum_apart(tmp_path: Path) -> None:
    """All were killed, and restart with files that name other voters than the log does: only the log counts."""
    with controllers(tmp_path / "c") as quorum:
        write(quorum, "before")
        everyone = [member.id for member in quorum.cluster.controllers]
        for node_id in everyone:
            end(quorum, node_id)
        for node_id in everyone[1:]:
            config = quorum.cluster.directory / quorum.cluster.member(node_id).config
            settings = load_controller_settings(config)
            alone = replace(settings, voters=tuple(v for v in settings.voters if v.id == node_id))
            config.write_text(controller_toml(alone, data_dir=str(settings.data_dir)))
        for node_id in everyone:
            restart(quorum, node_id)
        wait_until_green(quorum)
        write(quorum, "after")
        told = status(quorum)
        assert [voter["id"] for voter in told["voters"]] == everyone
        assert told["observers"] == []
        for node_id in everyone:
            text = (quorum.cluster.data(node_id) / "controller.log").read_text()
            assert "Traceback" not in text
            assert "INCONSISTENT_VOTER_SET" not in text


def test_two_new_disks_found_no_second_quorum_beside_a_voter_that_has_the_log(tmp_path: Path) -> None:
    """The disks of a majority are gone, and all files name the new ones: what is left of the log must not be voted away.

    New disks that are linked to nobody else would found a quorum, so the survivor is up before they start.
    """
    with controllers(tmp_path / "c", adjust=very_calm) as quorum:
        write(quorum, "kept")
        cluster = quorum.cluster
        survivor, *others = [member.id for member in cluster.controllers]
        for node_id in (survivor, *others):
            end(quorum, node_id)

        def answers(node_id: int) -> bool:
            try:
                return ask(cluster.http(node_id), "GET", "/healthz").status == 200
            except NO_ANSWER:
                return False

        configs = [cluster.directory / member.config for member in cluster.controllers]
        for node_id in others:
            shutil.rmtree(cluster.data(node_id))
            config = cluster.directory / cluster.member(node_id).config
            made = json.loads(metaquorum(quorum, "storage", "format", "--config", config, "--json"))
            before = str(cluster.member(node_id).directory_id)
            for each in configs:
                each.write_text(each.read_text().replace(before, made["directory_id"]))
        restart(quorum, survivor)
        poll_until(lambda: answers(survivor), deadline_s=DEADLINE_S, what="the survivor is up")
        for node_id in others:
            restart(quorum, node_id)

        def codes(node_id: int) -> set[str]:
            try:
                return {
                    each["code"] for each in ask(cluster.http(node_id), "GET", "/readyz").value()["reasons"]
                }
            except NO_ANSWER:
                return set()

        poll_until(
            lambda: all("ALREADY_FOUNDED" in codes(node_id) for node_id in others),
            deadline_s=DEADLINE_S,
            what="both say that the quorum was founded already",
        )
        for node_id in (survivor, *others):
            assert ask(cluster.http(node_id), "GET", "/v1/quorum").ok()["leader_id"] == -1
            assert cluster.exit_code(node_id) is None
