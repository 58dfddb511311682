"""Edge: the sample brokers of docs/samples in Go and Java: they keep the protocol, and live in a real cluster."""

import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from ops.broker_check.brokers import Commanded
from ops.broker_check.check import PASSED, check
from ops.broker_check.play import Patience
from tests.support.processes import poll_until
from tests.support.samples import go_broker, java_broker
from tests.support.wire import Quorum, calm, controllers

pytestmark = pytest.mark.slow

SAMPLES = {"go": (go_broker, 21), "java": (java_broker, 22)}
EACH = pytest.mark.parametrize(("sample", "broker_id"), SAMPLES.values(), ids=SAMPLES)
Sample = Callable[[], Sequence[str]]
DEADLINE_S = 60.0


@EACH
async def test_a_sample_keeps_the_protocol(sample: Sample, broker_id: int) -> None:
    results = await check(
        Commanded([*sample(), "{cluster_id}", str(broker_id), "{controllers}"]),
        host="127.0.0.1",
        port=0,
        cluster_id="sample-check-000000000",
        session_timeout_ms=6_000,
        patience=Patience(start_s=90, request_s=20),
    )
    assert [one for one in results if one["result"] != PASSED] == []


@pytest.fixture(scope="module")
def quorum(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Quorum]:
    with controllers(tmp_path_factory.mktemp("samples") / "c", adjust=calm) as running:
        yield running


def state_of(quorum: Quorum, broker_id: int) -> dict[str, Any]:
    reply = quorum.ask("GET", f"/v1/brokers/{broker_id}")
    told: dict[str, Any] = reply.value()
    return told if reply.status == 200 else {}


def wait_for(quorum: Quorum, broker_id: int, state: str, *, epoch: int | None = None) -> int:
    """Wait until a broker is in a state, and return its epoch, which is `epoch` where that is given."""

    def is_there() -> dict[str, Any] | None:
        broker = state_of(quorum, broker_id)
        return broker if broker.get("state") == state else None

    broker = poll_until(is_there, deadline_s=DEADLINE_S, what=f"broker {broker_id} is {state}")
    assert broker is not None
    assert epoch in (None, broker["broker_epoch"])
    return int(broker["broker_epoch"])


def wait_until_applied(quorum: Quorum, broker_id: int, offset: int) -> None:
    poll_until(
        lambda: state_of(quorum, broker_id).get("applied_offset", 0) >= offset,
        deadline_s=DEADLINE_S,
        what=f"broker {broker_id} has applied all below {offset}",
    )


@EACH
def test_a_sample_lives_in_a_cluster(quorum: Quorum, sample: Sample, broker_id: int) -> None:
    """Goal: it registers, follows, outlives another leader and its own fencing, and stops in order."""
    command = [*sample(), quorum.cluster_id, str(broker_id), *quorum.cluster.bootstrap]
    process = subprocess.Popen(command)
    try:
        _live(quorum, process, broker_id)
    finally:
        process.kill()
        process.wait()


def _live(quorum: Quorum, process: subprocess.Popen[bytes], broker_id: int) -> None:
    epoch = wait_for(quorum, broker_id, "ONLINE")
    topic = {"name": f"on-{broker_id}", "assignment": [[broker_id]] * 3}
    written = quorum.ask("POST", "/v1/topics", topic).ok(201)
    wait_until_applied(quorum, broker_id, written["offsets"]["end"])
    quorum.transfer(None)
    settings = {"cluster": True, "set": {"log.cleaner.threads": str(broker_id)}}
    written = quorum.ask("PATCH", "/v1/configs", settings).ok()
    wait_until_applied(quorum, broker_id, written["offsets"]["end"])
    process.send_signal(signal.SIGSTOP)
    wait_for(quorum, broker_id, "OFFLINE", epoch=epoch)  # fenced, and without a session
    process.send_signal(signal.SIGCONT)
    wait_for(quorum, broker_id, "ONLINE", epoch=epoch)
    process.terminate()
    assert process.wait(DEADLINE_S) in (0, 128 + signal.SIGTERM)  # Java has a code of its own after a signal
    wait_for(quorum, broker_id, "OFFLINE", epoch=epoch)
    partitions = quorum.ask("GET", f"/v1/topics/on-{broker_id}").value()["partitions"]
    assert [partition["leader"] for partition in partitions] == [-1] * 3
