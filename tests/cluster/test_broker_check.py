"""Edge: `broker verify`: a broker that keeps the protocol passes every point, and each mistake of one is found by name."""

import asyncio
import json
import random
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from broker_agent.config import BrokerSettings
from metadata_log.ids import BrokerId, NodeId
from metadata_log.node.disk.data_directory import format_directory
from ops import cli
from ops.broker_check.brokers import ByHand, Commanded, probe
from ops.broker_check.check import AT_A_TIME, FAILED, NOT_REACHED, PASSED, check
from ops.broker_check.play import Broker, Patience
from ops.broker_check.points import FIRST_LIFE, SECOND_LIFE
from ops.local.layout import free_ports
from ops.settings_writing import broker_toml
from tests.support import mistaken_broker
from tests.support.mistaken_broker import MISTAKES

pytestmark = pytest.mark.slow

SOURCE = Path(mistaken_broker.__file__)
CLUSTER_ID = "broker-check-000000000"
PATIENCE = Patience(start_s=40, request_s=10)
SESSION_MS = 6_000
"""Twice that of a local cluster: on a busy machine a sound broker must not look like one that is late."""
AT_ONCE = 8
"""How many checks run at a time: most of their time they wait."""
HASTY = "does_not_pause"
"""Checked alone: beside others its repetitions would come late enough to look like pauses."""
ATTEMPTS = 5
"""And again where they did, as on a machine that others keep busy."""


def words(*more: str) -> list[str]:
    return [sys.executable, str(SOURCE), *more, "{cluster_id}", "11", "{controllers}"]


async def checked(broker: Broker, **more: Any) -> list[dict[str, Any]]:
    return await check(
        broker,
        host="127.0.0.1",
        port=0,
        cluster_id=CLUSTER_ID,
        session_timeout_ms=SESSION_MS,
        patience=PATIENCE,
        **more,
    )


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Sequence[Mapping[str, Any]]]:
    """Return the report on each mistaken broker."""
    folder = tmp_path_factory.mktemp("mistaken")
    free = asyncio.Semaphore(AT_ONCE)

    async def report(mistake: str) -> tuple[str, list[dict[str, Any]]]:
        async with free:
            broker = Commanded(words("--mistake", mistake, "--cache", str(folder / mistake)))
            return mistake, await checked(broker)

    async def report_of_the_hasty() -> tuple[str, list[dict[str, Any]]]:
        for _ in range(ATTEMPTS - 1):
            found = await report(HASTY)
            if any((one["point"], one["result"]) == (MISTAKES[HASTY], FAILED) for one in found[1]):
                return found
        return await report(HASTY)

    async def all_reports() -> list[tuple[str, list[dict[str, Any]]]]:
        others = [mistake for mistake in MISTAKES if mistake != HASTY]
        return [await report_of_the_hasty(), *await asyncio.gather(*map(report, others))]

    return dict(asyncio.run(all_reports()))


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_found_by_name(reports: Mapping[str, Sequence[Mapping[str, Any]]], mistake: str) -> None:
    found = {one["point"]: one["seen"] for one in reports[mistake] if one["result"] == FAILED}
    name = MISTAKES[mistake]
    assert found.get(name), reports[mistake]
    if name != AT_A_TIME:  # which is judged at the end; a second poll spoils whatever it meets
        assert next(iter(found)) == name


def test_features_that_a_new_cluster_has_and_a_broker_does_not_register_are_named(
    reports: Mapping[str, Sequence[Mapping[str, Any]]],
) -> None:
    seen = reports["knows_no_groups"][0]["seen"]
    assert "UNSUPPORTED_VERSION" in seen and "does not support group.version (the cluster is at 1)" in seen


def test_every_point_is_failed_by_a_mistake() -> None:
    points = {point.name for point in (*FIRST_LIFE, *SECOND_LIFE) if not point.needs_probe}
    assert set(MISTAKES.values()) == points | {AT_A_TIME}


def test_what_lies_behind_a_failed_point_is_not_called_passed(
    reports: Mapping[str, Sequence[Mapping[str, Any]]],
) -> None:
    results = [one["result"] for one in reports["counts_frames"][: len(FIRST_LIFE) - 3]]
    assert results == [PASSED] * 7 + [FAILED] + [NOT_REACHED] * (len(results) - 8)


def test_the_command_reports_a_sound_broker(capfd: pytest.CaptureFixture[str]) -> None:
    patient = ["--session-timeout", f"{SESSION_MS // 1000}s", "--patience", "20s"]
    assert cli.main(["broker", "verify", "--run", " ".join(words()), *patient, "-o", "json"]) == cli.OK
    told = json.loads(capfd.readouterr().out)
    assert {one["result"] for one in told} == {PASSED}
    assert len(told) == len([p for p in (*FIRST_LIFE, *SECOND_LIFE) if not p.needs_probe]) + 1


def test_a_command_that_cannot_be_run_is_named(capfd: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["broker", "verify", "--run", "./no-such-broker {controllers}"]) == cli.REJECTED
    assert "./no-such-broker cannot be run" in capfd.readouterr().err


async def test_our_own_broker_keeps_the_protocol(tmp_path: Path) -> None:
    """Its probe tells whether it serves."""
    port = next(free_ports(set(), random.Random()))
    config, data_dir = tmp_path / "broker.toml", tmp_path / "data"
    node = NodeId(11)
    format_directory(data_dir, role="broker", node_id=node, cluster_id=CLUSTER_ID, rng=random.Random(1))

    class Ours(Commanded):
        async def start(self, urls: Sequence[str], cluster_id: str) -> None:
            settings = BrokerSettings(
                cluster_id=cluster_id,
                broker_id=BrokerId(node),
                data_dir=data_dir,
                controllers=tuple(urls),
                listen_http=("127.0.0.1", port),
            )
            config.write_text(broker_toml(settings, data_dir=str(data_dir)))
            await super().start(urls, cluster_id)

    broker = Ours([sys.executable, "-m", "ops.cli", "broker", "run", "--config", str(config)])
    results = await checked(broker, serves=probe(f"http://127.0.0.1:{port}/readyz"))
    assert [one for one in results if one["result"] != PASSED] == []


@pytest.mark.parametrize(
    ("always", "found"),
    [(True, ["refuses_while_fenced", "stops_with_its_session"]), (False, ["serves_when_online"])],
)
async def test_a_probe_that_tells_nothing_is_found(*, always: bool, found: list[str]) -> None:
    async def serves() -> bool:
        return always

    results = await checked(Commanded(words()), serves=serves)
    assert [one["point"] for one in results if one["result"] == FAILED] == found


async def test_a_person_may_start_and_stop_the_broker() -> None:
    said: list[str] = []
    running: list[subprocess.Popen[bytes]] = []

    def say(message: str) -> None:
        said.append(message)
        if message.startswith("start"):
            url = message.split("controllers ")[1].split(",", maxsplit=1)[0]
            running.append(subprocess.Popen([sys.executable, SOURCE, CLUSTER_ID, "11", url]))
        else:
            running[-1].terminate()

    try:
        results = await checked(ByHand(say))
    finally:
        for process in running:
            process.kill()
            process.wait()
    assert [one for one in results if one["result"] != PASSED] == []
    assert [message.split()[0] for message in said] == ["start", "stop", "stop", "start", "stop"]
