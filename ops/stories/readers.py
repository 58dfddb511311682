"""Edge: the story of who serves clients: the leader, and a follower for readers in its rack that ask for that.

Tests: tests/kafka/stories.
"""

from typing import Final

from ops.stories.cluster import rack_of
from ops.stories.requests import FETCH_WITHOUT_RACK, error_name
from ops.stories.stage import Facts, Stage

RECORDS: Final = 5
PERIODS: Final = 3


def run(stage: Stage) -> Facts:
    """Send reads and writes to a follower, with and without a rack."""
    leader, follower, other = stage.ids[:3]
    topic = stage.new_topic("readers", [(leader, follower, other)])
    stage.step(
        "three replicas: one leader and two followers",
        "the leader counts as a replica; the controllers name it, and all brokers know it",
    )
    stage.send(topic, range(RECORDS), acks="all")
    for broker_id in (leader, follower, other):
        stage.until_high_watermark(topic, broker_id, RECORDS)
    found = stage.partition(topic)
    facts: Facts = {
        "replicas": stage.expect("replicas", found["replicas"], [leader, follower, other]),
        "leader": stage.expect("leader", found["leader"], leader),
    }

    _refused_and_served(stage, facts, topic)
    _periodic(stage, facts)
    return facts


def _refused_and_served(stage: Stage, facts: Facts, topic: str) -> None:
    leader, follower, other = stage.ids[:3]
    stage.step(f"write to broker {follower}, a follower", "only the leader writes")
    error, _ = stage.write_to(follower, topic)
    facts["write"] = stage.expect("answer", error_name(error), "NOT_LEADER_OR_FOLLOWER")
    facts["log_ends"] = stage.expect(
        "log ends", stage.log_ends(topic), dict.fromkeys((leader, follower, other), RECORDS)
    )

    stage.step(
        f"read from broker {follower} as clients did before Kafka 2.4, then as one that names its rack",
        "a client that cannot say where it is may read from the leader alone (KIP-392)",
    )
    old = stage.fetched(topic, follower, 0, api=FETCH_WITHOUT_RACK)
    facts["old_read"] = stage.expect("answer without a rack", error_name(old.error), "NOT_LEADER_OR_FOLLOWER")
    at_leader = stage.fetched(topic, leader, 0, api=FETCH_WITHOUT_RACK)
    facts["old_read_at_leader"] = stage.expect(
        "the same at the leader: has records", bool(at_leader.records), True
    )
    rack = rack_of(1)
    sent_on = stage.fetched(topic, leader, 0, rack=rack)
    facts["preferred"] = stage.expect(
        f"the leader sends a client of {rack} to broker", sent_on.preferred, follower
    )
    near = stage.fetched(topic, follower, 0, rack=rack)
    facts["near_read"] = stage.expect(
        "that broker answers with records, up to its high watermark",
        (error_name(near.error), bool(near.records), near.high_watermark),
        ("NONE", True, RECORDS),
    )
    facts["own_rack"] = stage.expect(
        "a client in the leader's rack is sent nowhere",
        stage.fetched(topic, leader, 0, rack=rack_of(0)).preferred,
        -1,
    )


def _periodic(stage: Stage, facts: Facts) -> None:
    leader, follower = stage.ids[:2]
    stage.step(
        "followers ask again and again", "also where nothing is written; that is how a leader knows them"
    )
    link = stage.link(follower, leader)
    link.hold()
    for _ in range(PERIODS):
        stage.until(f"broker {follower} is answered", link.held_bytes)
        link.let_one_pass()
        stage.until("the answer is taken", lambda: not link.held_bytes())
    link.open()
    facts["fetches"] = stage.expect("fetches seen, and nothing was written", PERIODS, PERIODS)
