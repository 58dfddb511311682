"""Edge: the story of acks 0, 1 and all: which acknowledged records a lost leader or controller takes with it.

The roles are those of the documents: broker 2 leads, broker 1 follows closely, broker 3 far behind. Here they are the
second, the first and the third broker. Topics with acks=all have a fourth one in the place of broker 3, because that one is
out of sync long before: so one loss of a leader serves all topics.
Tests: tests/kafka/stories.
"""

import signal
import time
from typing import Final

from confluent_kafka import Producer

from ops.kafka.clients import read_to_end
from ops.stories import requests
from ops.stories.requests import error_name
from ops.stories.stage import DEADLINE_S, Facts, Sent, Stage, StoryFailed

BASE: Final = 1_000
"""Records that all replicas have at the beginning."""
FAR: Final = 7_456
"""How far broker 3 is behind when broker 2 is lost; broker 1 is NEAR behind."""
NEAR: Final = 123
UNSEEN: Final = 50
"""Records with acks=0 that are sent to a leader that does not run any more."""
LATER: Final = 15_286
"""How far broker 3 is behind when broker 1 is lost, with acks=1."""
LATER_ALL: Final = 14_238
"""The same with acks=all."""
SLOW_MS: Final = 4_000
QUICK_MS: Final = 250
SHRINKS_WITHIN_MS: Final = 13_000
"""An ISR shrinks within one and a half times replica.lag.time.max.ms."""
UNCLEAN: Final = "unclean.leader.election.enable"
MIN_ISR: Final = "min.insync.replicas"
GATHER_MS: Final = 500
"""All records of a call go in one batch. A client whose requests are under way, as many as may be, looks for room for the
next one all the time, and keeps a processor busy.
"""
_ALLOWED: Final = {UNCLEAN: "true"}


class _Acks:
    """The story; topics by what they are for, and the records that were acknowledged in each."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.one, self.two, self.three, self.fourth = stage.ids[:4]
        self.facts: Facts = {}
        self.topics: dict[str, str] = {}
        self.acknowledged: dict[str, set[int]] = {}
        self.kept: dict[str, int] = {}
        """By topic, when they were counted last."""
        self.without_acks = stage.producer("0")
        """It is connected when the leader stands still, and sends on."""

    def run(self) -> Facts:
        self._create()
        self._lose_the_controller()
        self._wait_for_the_slowest()
        with self.stage.window(
            (self.one, self.two, self.three), self.topics["one"], self.topics["one-clean"]
        ):
            self._fall_behind()
        self._lose_the_leader()
        self._refuse_below_min_isr()
        self._fall_behind_again()
        self._lose_both()
        self._return()
        return self.facts

    def _send(self, which: str, count: int, acks: str) -> Sent:
        """Send the next records of a topic, all of which must be acknowledged."""
        first = len(self.acknowledged[which])
        producer = self.without_acks if acks == "0" else None
        sent = self.stage.send(self.topics[which], range(first, first + count), acks=acks, producer=producer)
        if sent.failed:
            raise StoryFailed(f"records to {self.topics[which]} were refused: {set(sent.failed.values())}")
        self.acknowledged[which].update(sent.acknowledged)
        return sent

    def _lost(self, which: str) -> int:
        """Return how many of the acknowledged records cannot be read; tell how many can."""
        topic, acknowledged = self.topics[which], self.acknowledged[which]
        kept = acknowledged & set(read_to_end(self.stage.bootstrap, topic, timeout_s=DEADLINE_S))
        self.kept[which] = len(kept)
        self.stage.tell(f"{topic}: {len(acknowledged)} records acknowledged, {len(kept)} kept")
        return len(acknowledged) - len(kept)

    def _create(self) -> None:
        stage = self.stage
        stage.step(
            f"topics with acks 0, 1 and all; broker {self.two} leads them, broker {self.one} follows first",
            f"a topic takes no leader that lacks records unless {UNCLEAN} says so",
        )
        with_three, with_fourth = [(self.two, self.one, self.three)], [(self.two, self.one, self.fourth)]
        for which, replicas, configs in (
            ("none", with_three, {}),
            ("one", with_three, _ALLOWED),
            ("one-clean", with_three, {}),
            ("all", with_fourth, _ALLOWED),
            ("all-clean", with_fourth, {}),
            ("min-isr", with_fourth, {MIN_ISR: "2"}),
            ("shrinks", [(self.two, self.fourth)], {MIN_ISR: "2"}),
        ):
            self.topics[which] = stage.new_topic(f"acks-{which}", replicas, configs)
            self.acknowledged[which] = set()
        unclean = stage.setting("topic", self.topics["none"], UNCLEAN)
        self.facts["unclean_default"] = stage.expect(
            f"{UNCLEAN} of a topic that sets nothing, and its source",
            (unclean.value, unclean.source),
            ("false", "DEFAULT_CONFIG"),
        )
        offsets: dict[str, bool] = {}
        for which, acks in (
            ("none", "0"),
            ("one", "1"),
            ("one-clean", "1"),
            ("all", "all"),
            ("all-clean", "all"),
            ("min-isr", "all"),
        ):
            sent = self._send(which, BASE, acks)
            offsets[acks] = sorted(sent.acknowledged.values()) == [*range(BASE)]
        self.facts["offsets_known"] = stage.expect(
            "the client learns the offsets of its records", offsets, {"0": False, "1": True, "all": True}
        )

    def _lose_the_controller(self) -> None:
        stage = self.stage
        controller = stage.active_controller()
        stage.step(
            f"kill -9 controller {controller}, the active one, and send {NEAR} records with each acks",
            "leaders of partitions stay where they are: the controllers are no part of a write",
        )
        leaders = {which: stage.partition(topic)["leader"] for which, topic in self.topics.items()}
        stage.kill(controller)
        for which, acks in (("none", "0"), ("one", "1"), ("all", "all")):
            self._send(which, NEAR, acks)
        successor = stage.until(
            "another controller is active", lambda: stage.active_controller() != controller
        )
        assert successor
        self.facts["controller_lost"] = stage.expect(
            "lost with the controller",
            {acks: self._lost(which) for acks, which in (("0", "none"), ("1", "one"), ("all", "all"))},
            {"0": 0, "1": 0, "all": 0},
        )
        stage.expect(
            "leaders as before",
            {which: stage.partition(topic)["leader"] for which, topic in self.topics.items()},
            leaders,
        )
        stage.restart(controller)

    def _wait_for_the_slowest(self) -> None:
        """A write with acks=all lasts as long as the slowest member of the ISR needs."""
        stage = self.stage
        near, far = stage.link(self.one, self.two), stage.link(self.fourth, self.two)
        stage.step(
            f"acks=all, broker {self.one} answered {QUICK_MS} ms later, broker {self.fourth} {SLOW_MS} ms later",
            "the acknowledgement waits for the slowest member of the ISR",
        )
        with stage.window((self.one, self.two, self.fourth), self.topics["all"]):
            near.hold()
            far.hold()
            self.facts["slow_ms"] = self._timed_write({QUICK_MS: self.one, SLOW_MS: self.fourth})
        stage.tell(f"acknowledged after {self.facts['slow_ms']} ms")
        stage.step(
            f"cut broker {self.fourth} off until it has left the ISR",
            "a record that the ISR was large enough for when it came is not served once the ISR is too small",
        )
        far.cut()
        stage.link(self.fourth, self.one).cut()
        shrinking = Sent()
        producer = stage.producer("all", retries=0, request_timeout_ms=SHRINKS_WITHIN_MS)
        stage.send_on(producer, self.topics["shrinks"], range(1), shrinking)
        # A follower that has all of its leader's log stays in sync, however silent: it leaves once there is more.
        self._send_until_it_has_left({"all": LATER_ALL - 1, "all-clean": LATER_ALL, "min-isr": NEAR})
        stage.until_isr(self.topics["shrinks"], (self.two,))
        producer.flush(DEADLINE_S)
        # Before KIP-966 the high watermark went on, and the answer was NOT_ENOUGH_REPLICAS_AFTER_APPEND.
        self.facts["shrank_after_append"] = stage.expect(
            f"a write under {MIN_ISR}=2 during which the ISR shrank to 1: answer, high watermark, log end",
            (
                shrinking.failed.get(0),
                stage.high_watermark(self.topics["shrinks"], self.two),
                stage.log_end(self.topics["shrinks"], self.two),
            ),
            ("REQUEST_TIMED_OUT", 0, 1),
        )
        with stage.window((self.one, self.two), self.topics["all"]):
            near.hold()
            self.facts["quick_ms"] = self._timed_write({QUICK_MS: self.one})
        stage.tell(
            f"with ISR {[self.two, self.one]} a record is acknowledged after {self.facts['quick_ms']} ms"
        )

    def _send_until_it_has_left(self, counts: dict[str, int]) -> None:
        """Send records with acks=all that the fourth broker does not get: they are acknowledged once it is out of sync."""
        stage = self.stage
        under_way: dict[str, tuple[Producer, Sent]] = {}
        for which, count in counts.items():
            sent = Sent()
            producer = stage.producer(
                "all", enable_idempotence=True, linger_ms=GATHER_MS, batch_num_messages=count
            )
            under_way[which] = producer, sent
            first = len(self.acknowledged[which])
            stage.send_on(producer, self.topics[which], range(first, first + count), sent)
        for which, (producer, sent) in under_way.items():
            stage.until_isr(self.topics[which], (self.one, self.two))
            producer.flush(DEADLINE_S)
            stage.expect(
                f"records to {self.topics[which]} acknowledged without broker {self.fourth}",
                len(sent.acknowledged),
                counts[which],
            )
            self.acknowledged[which].update(sent.acknowledged)

    def _timed_write(self, after_ms: dict[int, int]) -> int:
        """Send one record, answer each follower after its time, and return after how many ms it was acknowledged."""
        stage, topic = self.stage, self.topics["all"]
        links = {broker_id: stage.link(broker_id, self.two) for broker_id in after_ms.values()}
        producer, sent, first = stage.producer("all"), Sent(), len(self.acknowledged["all"])
        stage.send_on(producer, topic, range(first, first + 1), sent)
        began = time.monotonic()
        for wait_ms, broker_id in sorted(after_ms.items()):
            time.sleep(max(0.0, began + wait_ms / 1000 - time.monotonic()))
            producer.poll(0)
            stage.expect(f"acknowledged before broker {broker_id} has it", len(sent.acknowledged), 0)
            links[broker_id].open()
            stage.until_log_end(topic, broker_id, first + 1)
        stage.until_sent([producer], sent, 1)
        self.acknowledged["all"].add(first)
        return round((time.monotonic() - began) * 1000)

    def _fall_behind(self) -> None:
        stage = self.stage
        stage.step(
            f"broker {self.three} falls {FAR} records behind, then broker {self.one} {NEAR}",
            "with acks=1 the leader alone acknowledges; with acks=all both members of the ISR have all records",
        )
        for which in ("all", "all-clean", "min-isr"):
            stage.until_high_watermark(self.topics[which], self.one, len(self.acknowledged[which]))
        acks = {"none": "0", "one": "1", "one-clean": "1"}
        stage.link(self.three, self.two).cut()
        for which, asked in acks.items():
            self._send(which, FAR - NEAR, asked)
        for which in acks:
            stage.until_log_end(self.topics[which], self.one, len(self.acknowledged[which]))
        stage.link(self.one, self.two).cut()
        for which, asked in acks.items():
            self._send(which, NEAR, asked)
            stage.until_log_end(self.topics[which], self.two, len(self.acknowledged[which]))
        for which in ("one", "one-clean"):
            end = len(self.acknowledged[which])
            ends = stage.log_ends(self.topics[which])
            behind = {
                broker_id: end - (ends[broker_id] or 0) for broker_id in (self.two, self.one, self.three)
            }
            self.facts["behind"] = stage.expect(
                f"records behind in {self.topics[which]}",
                behind,
                {self.two: 0, self.one: NEAR, self.three: FAR},
            )
        self.facts["isr_before"] = {
            which: sorted(stage.partition(self.topics[which])["isr"]) for which in ("one", "all", "min-isr")
        }

    def _lose_the_leader(self) -> None:
        stage = self.stage
        stage.step(
            f"broker {self.two} stands still while {UNSEEN} records with acks=0 are sent to it; then kill -9",
            f"the first live member of the ISR leads: broker {self.one}, which lacks {NEAR} records that were acknowledged",
        )
        stage.cluster.signal(self.two, signal.SIGSTOP)
        self._send("none", UNSEEN, "0")
        stage.tell(f"{UNSEEN} records with acks=0 are reported as sent, to a process that does not run")
        stage.kill(self.two)
        for which in ("none", "one", "one-clean", "all", "all-clean", "min-isr"):
            stage.until_leader(self.topics[which], self.one)
        for which in ("none", "one", "one-clean"):
            stage.until_isr(self.topics[which], (self.one, self.three))
            end = stage.log_end(self.topics[which], self.one)
            stage.until_high_watermark(self.topics[which], self.one, end or 0)
        self.facts["leader_lost"] = stage.expect(
            "lost with the leader",
            {which: self._lost(which) for which in ("none", "one", "one-clean", "all", "min-isr")},
            {"none": NEAR + UNSEEN, "one": NEAR, "one-clean": NEAR, "all": 0, "min-isr": 0},
        )
        self.facts["leader_kept"] = dict(self.kept)
        self.facts["isr_after"] = stage.expect(
            "ISR of the topics with acks=all",
            {which: stage.partition(self.topics[which])["isr"] for which in ("all", "min-isr")},
            {"all": [self.one], "min-isr": [self.one]},
        )

    def _refuse_below_min_isr(self) -> None:
        stage = self.stage
        stage.step(
            f"{MIN_ISR}=2 and an ISR of one: write with acks=all",
            "nothing is lost, and nothing is taken that one more loss would take away",
        )
        sent = stage.send(
            self.topics["min-isr"], range(1), acks="all", producer=stage.producer("all", retries=0)
        )
        self.facts["refused"] = stage.expect("answer", sent.failed.get(0), "NOT_ENOUGH_REPLICAS")

    def _fall_behind_again(self) -> None:
        stage = self.stage
        stage.step(
            f"broker {self.three} falls {LATER} records behind broker {self.one}, and leaves the ISR",
            "broker 1 of the documents is then the only one with these records",
        )
        for which in ("one", "one-clean"):
            # What broker 2 alone had is lost; the records that follow are numbered on from there.
            kept = set(read_to_end(stage.bootstrap, self.topics[which], timeout_s=60))
            self.acknowledged[which] &= kept
            stage.until_log_end(self.topics[which], self.three, len(kept))
        stage.link(self.three, self.one).cut()
        for which in ("one", "one-clean"):
            self._send(which, LATER, "1")
        for which in ("one", "one-clean"):
            stage.until_isr(self.topics[which], (self.one,))
            ends = stage.log_ends(self.topics[which])
            self.facts["behind_again"] = stage.expect(
                f"records behind in {self.topics[which]}",
                (ends[self.one] or 0) - (ends[self.three] or 0),
                LATER,
            )

    def _lose_both(self) -> None:
        stage = self.stage
        controller = stage.active_controller()
        stage.step(
            f"kill -9 broker {self.one} and controller {controller}, the active one, at once",
            f"the next controller elects a replica that lacks records where {UNCLEAN}=true, and nobody elsewhere",
        )
        stage.kill(self.one, controller)
        stage.until_leader(self.topics["one"], self.three)
        stage.until_leader(self.topics["all"], self.fourth)
        for which in ("one-clean", "all-clean"):
            stage.until_leader(self.topics[which], -1)
        for which, broker_id in (("one", self.three), ("all", self.fourth)):
            self.facts[f"{which}_leader"] = stage.expect(
                f"leader of {self.topics[which]}", stage.partition(self.topics[which])["leader"], broker_id
            )
        lost = {which: self._lost(which) for which in ("one", "all")}
        self.facts["both_lost"] = stage.expect(
            "lost where such a replica leads", lost, {"one": LATER, "all": LATER_ALL}
        )
        self.facts["lost_with_acks_1"] = stage.expect(
            "lost in both losses with acks=1", self.facts["leader_lost"]["one"] + lost["one"], 15_409
        )
        self.facts["refused_without_leader"] = {}
        for which, broker_id in (("one-clean", self.three), ("all-clean", self.fourth)):
            topic = self.topics[which]
            write, _ = stage.write_to(broker_id, topic)
            read = stage.fetched(topic, broker_id, 0, api=requests.FETCH_WITHOUT_RACK).error
            self.facts["refused_without_leader"][which] = stage.expect(
                f"leader of {topic}, and what broker {broker_id} answers to a write and to a read",
                (stage.partition(topic)["leader"], error_name(write), error_name(read)),
                (-1, "NOT_LEADER_OR_FOLLOWER", "NOT_LEADER_OR_FOLLOWER"),
            )

    def _return(self) -> None:
        stage = self.stage
        stage.step(
            f"start broker {self.one} again",
            "where no other broker was allowed to lead, it leads again, and has everything",
        )
        stage.heal()
        for which in ("one-clean", "all-clean"):
            stage.until_leader(self.topics[which], self.one)
        self.facts["returned"] = stage.expect(
            "lost in the second loss",
            {which: self._lost(which) for which in ("one-clean", "all-clean")},
            {"one-clean": 0, "all-clean": 0},
        )
        self.facts["still_lost"] = stage.expect(f"and still where {UNCLEAN}=true", self._lost("one"), LATER)


def run(stage: Stage) -> Facts:
    """Tell it on four brokers."""
    return _Acks(stage).run()
