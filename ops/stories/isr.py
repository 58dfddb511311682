"""Edge: the story of the two reasons for which a follower leaves the ISR, and of its return without an operator.

Since KIP-16 both reasons are one rule: a follower stays while it had caught up with the leader's log end within
replica.lag.time.max.ms. One that is silent stops catching up, and so does one that fetches too slowly.
Tests: tests/kafka/stories.
"""

import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from ops.java_properties import properties_text, read_properties
from ops.kafka.tools import ToolFailed, run_tool
from ops.stories.cluster import LAG_TIME_MAX_MS
from ops.stories.stage import Facts, Stage, WindowMissed

FETCH_WAIT: Final = "replica.fetch.wait.max.ms"
LAG_TIME: Final = "replica.lag.time.max.ms"
KAFKA_LAG_TIME_MS: Final = 30_000
LARGE: Final = 700_000
"""Bytes of a record of which only one fits into what a follower is answered at once (1 MiB)."""
RECORDS: Final = 40
PACE_S: Final = 0.8
GROWN: Final = 3


def run(stage: Stage) -> Facts:
    """Cut one follower off, let another fetch too slowly, and let both return."""
    facts: Facts = {}
    _settings(stage, facts)
    leader, silent, slow = stage.ids[:3]
    quiet = stage.new_topic("silent", [(leader, silent)])
    busy = stage.new_topic("slow", [(leader, slow)])
    stage.step(
        f"cut broker {silent} off; let broker {slow} have one record of {LARGE} bytes each {PACE_S:g} s",
        f"both follow broker {leader}: one asks for nothing any more, the other one asks on and is never at the end",
    )
    stage.link(slow, leader).hold()
    stage.link(silent, leader).cut()
    stage.send(quiet, range(10), acks="1")
    stage.send_large(busy, RECORDS, size=LARGE)
    with ThreadPoolExecutor(1) as aside:  # Kafka's own check takes seconds, in which the followers leave
        accepted = aside.submit(_accepted, stage)
        _both_leave(stage, facts, quiet, busy)
    facts["accepted"] = stage.expect(
        f"meanwhile: values of {FETCH_WAIT} that a broker accepts beside {LAG_TIME}={KAFKA_LAG_TIME_MS}",
        accepted.result(),
        {500: True, KAFKA_LAG_TIME_MS: True, KAFKA_LAG_TIME_MS + 1: False},
    )
    _both_return(stage, facts, quiet, busy)
    return facts


def _both_return(stage: Stage, facts: Facts, quiet: str, busy: str) -> None:
    leader, silent, slow = stage.ids[:3]
    stage.step(
        "heal both links",
        "a follower whose log end reaches the leader's high watermark returns to the ISR by itself",
    )
    stage.link(silent, leader).open()
    stage.link(slow, leader).open()
    stage.until_isr(quiet, (leader, silent))
    stage.until_isr(busy, (leader, slow))
    facts["returned"] = {
        "silent": stage.expect(f"ISR of {quiet}", stage.partition(quiet)["isr"], [leader, silent]),
        "slow": stage.expect(f"ISR of {busy}", stage.partition(busy)["isr"], [leader, slow]),
    }
    facts["caught_up"] = stage.expect(
        "log ends of the slow one", stage.log_ends(busy), {leader: RECORDS, slow: RECORDS}
    )


def _settings(stage: Stage, facts: Facts) -> None:
    stage.step(
        "the two times that count, and their order",
        f"a follower waits up to {FETCH_WAIT} for records; a leader waits up to {LAG_TIME} for a follower",
    )
    wait, lag = (stage.setting("broker", str(stage.ids[0]), key) for key in (FETCH_WAIT, LAG_TIME))
    facts["wait_ms"] = stage.expect(f"{FETCH_WAIT}, by default", int(wait.value), 500)
    facts["lag_ms"] = stage.expect(f"{LAG_TIME} of this cluster", int(lag.value), LAG_TIME_MAX_MS)
    facts["lag_default_ms"] = stage.expect(
        "and by default", int(lag.of_sources["DEFAULT_CONFIG"]), KAFKA_LAG_TIME_MS
    )


def _accepted(stage: Stage) -> dict[int, bool]:
    """Return whether Kafka takes each of some fetch waits beside its default of the lag time."""
    waits_ms = (500, KAFKA_LAG_TIME_MS, KAFKA_LAG_TIME_MS + 1)
    return {wait_ms: _accepts(stage, wait_ms, KAFKA_LAG_TIME_MS) for wait_ms in waits_ms}


def _accepts(stage: Stage, wait_ms: int, lag_ms: int) -> bool:
    """Answer whether Kafka takes these settings: it checks them when it formats the directory of a broker."""
    broker = stage.cluster.brokers[0]
    with tempfile.TemporaryDirectory() as scratch:
        properties = read_properties((stage.cluster.directory / broker.config).read_text(encoding="utf-8"))
        properties |= {FETCH_WAIT: str(wait_ms), LAG_TIME: str(lag_ms), "log.dirs": f"{scratch}/logs"}
        file = Path(scratch, "server.properties")
        file.write_text(properties_text(properties), encoding="utf-8")
        try:
            run_tool(
                "kafka-storage", "format", "--cluster-id", stage.cluster.cluster_id, "--config", str(file)
            )
        except ToolFailed as error:
            if FETCH_WAIT not in error.message:
                raise
            return False
    return True


def _both_leave(stage: Stage, facts: Facts, quiet: str, busy: str) -> None:
    """Let the slow one fetch at its pace until both have left, and keep what was seen of it meanwhile."""
    leader, silent, slow = stage.ids[:3]
    link = stage.link(slow, leader)
    ends: list[int] = []
    left: dict[str, int] = {}
    began, next_at = time.monotonic(), 0.0

    def have_left() -> bool:
        nonlocal next_at
        now = time.monotonic()
        if now >= next_at and link.held_bytes():
            link.let_one_pass()
            next_at = now + PACE_S
            ends.append(stage.log_end(busy, slow) or 0)
        for name, topic, follower in (("silent", quiet, silent), ("slow", busy, slow)):
            if name not in left and follower not in stage.partition(topic)["isr"]:
                left[name] = round((now - began) * 1000)
                stage.tell(f"broker {follower} left the ISR of {topic} after {left[name]} ms")
        return len(left) == 2

    stage.until("both have left", have_left)
    facts["isr"] = {
        "silent": stage.expect(f"ISR of {quiet}", stage.partition(quiet)["isr"], [leader]),
        "slow": stage.expect(f"ISR of {busy}", stage.partition(busy)["isr"], [leader]),
    }
    facts["silent_end"] = stage.expect("log end of the silent one", stage.log_end(quiet, silent), 0)
    facts["slow_ends"] = sorted(set(ends))
    stage.tell(f"log ends of the slow one, each time that it fetched: {facts['slow_ends']} of {RECORDS}")
    if len(facts["slow_ends"]) <= GROWN:
        raise WindowMissed(f"broker {slow} left the ISR before it had fetched more than {GROWN} times")
    stage.expect("it fetched until it left, and never had all", max(ends) < RECORDS, True)
    facts["left_ms"] = left
