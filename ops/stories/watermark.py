"""Edge: the story of the high watermark: what every member of the ISR has, and no more.

Tests: tests/kafka/stories.
"""

from collections.abc import Sequence
from typing import Final

from confluent_kafka import Producer

from ops.stories.stage import Facts, Sent, Stage

BEFORE: Final = 7
PADDING: Final = 2_000
"""Bytes of each record by which an answer that carries records is told from one that carries none."""
ONE_BATCH_MS: Final = 200


def run(stage: Stage) -> Facts:
    """Hold one follower at 7 of 10 records, let it come to 9, then to 10."""
    leader, fast, slow = stage.ids[:3]
    topic = stage.new_topic("watermark", [(leader, fast, slow)])
    stage.step(
        f"seven records on each of three replicas: broker {leader} leads, {fast} and {slow} follow",
        "with acks=all a record is acknowledged once every member of the ISR has it",
    )
    stage.send(topic, range(BEFORE), acks="all")
    for broker_id in (leader, fast, slow):
        stage.until_high_watermark(topic, broker_id, BEFORE)
    facts: Facts = {"begin": stage.expect("log ends", stage.log_ends(topic), {leader: 7, fast: 7, slow: 7})}

    # A broker answers a connection's requests one after the other: the third record has a producer of its own.
    sent, producers = Sent(), [stage.producer("all", linger_ms=ONE_BATCH_MS), stage.producer("all")]
    with stage.window((leader, fast, slow), topic):
        _hold(stage, facts, topic, producers, sent)

    stage.step(f"let everything pass to broker {slow}", "all have ten records")
    stage.link(slow, leader).open()
    stage.until_sent(producers, sent, 3)
    for broker_id in (leader, fast, slow):
        stage.until_high_watermark(topic, broker_id, 10)
    facts["end"] = stage.expect("log ends", stage.log_ends(topic), {leader: 10, fast: 10, slow: 10})
    return facts


def _hold(stage: Stage, facts: Facts, topic: str, producers: Sequence[Producer], sent: Sent) -> None:
    """Send three records, of which the slow follower gets two."""
    leader, fast, slow = stage.ids[:3]
    stage.step(
        f"hold the answers to broker {slow}, and send two records, then one more",
        f"broker {slow} fetches on, and what it is answered waits on the link; broker {fast} is as fast as ever",
    )
    link = stage.link(slow, leader)
    link.hold()
    stage.send_on(producers[0], topic, range(7, 9), sent, size=PADDING)

    stage.hold_records(link, 2 * PADDING)
    stage.send_on(producers[1], topic, range(9, 10), sent, size=PADDING)
    for broker_id in (leader, fast):
        stage.until_log_end(topic, broker_id, 10)
    facts["held"] = stage.expect("log ends", stage.log_ends(topic), {leader: 10, fast: 10, slow: 7})
    facts["held_high_watermark"] = stage.expect(
        "high watermark: the lowest of these", stage.high_watermark(topic, leader), 7
    )
    for producer in producers:
        producer.poll(0)
    facts["held_acknowledged"] = stage.expect(
        "of the three new records acknowledged", len(sent.acknowledged), 0
    )

    stage.step(
        f"let that one answer pass to broker {slow}",
        "it writes both records, and its next fetch, from 9 on, tells the leader so",
    )
    link.let_one_pass()
    stage.until_high_watermark(topic, leader, 9)
    stage.until_sent(producers, sent, 2)
    facts["nine"] = stage.expect("log ends", stage.log_ends(topic), {leader: 10, fast: 10, slow: 9})
    facts["nine_high_watermark"] = stage.expect("high watermark", stage.high_watermark(topic, leader), 9)
    facts["nine_known_to_slow"] = stage.expect(
        f"the one that broker {slow} knows: a follower learns it with its next answer",
        stage.high_watermark(topic, slow),
        7,
    )
    facts["nine_acknowledged"] = stage.expect("acknowledged", sorted(sent.acknowledged), [7, 8])
