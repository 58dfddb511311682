"""Edge: the story of a lost leader: what its log had beyond the high watermark is cut off when it returns, and what the new
leader serves until it knows how far its followers are.

Kafka of the documents' time cut a returning replica at its checkpointed high watermark. Since KIP-101 it asks the leader
where its last epoch ended; here both are the same offset.
Tests: tests/kafka/stories.
"""

import re
from typing import Final

from ops.kafka.clients import read_to_end
from ops.kafka.properties import LOG_DIRS
from ops.stories.requests import error_name
from ops.stories.stage import Facts, Sent, Stage
from ops.stories.watermark import PADDING

BEFORE: Final = 9
CHECKPOINT: Final = "replication-offset-checkpoint"


def run(stage: Stage) -> Facts:
    """Lose a leader whose log is longer than that of its followers, and let it return."""
    old, new, other = stage.ids[:3]
    longer = stage.new_topic("longer", [(old, new, other)])
    behind = stage.new_topic("behind", [(old, new, other)])
    facts: Facts = {}
    stage.step(
        f"nine records in two topics; broker {old} leads, {new} and {other} follow",
        "all replicas have them and know it",
    )
    for topic in (longer, behind):
        stage.send(topic, range(BEFORE), acks="all")
        for broker_id in (old, new, other):
            stage.until_high_watermark(topic, broker_id, BEFORE)
    with stage.window((old, new, other), longer, behind):
        _two_logs(stage, facts, longer, behind)
    _elected(stage, facts, longer, behind)
    _clients(stage, facts, longer)

    stage.step(
        f"start broker {old} again",
        f"it asks the leader where its own last epoch ended, cuts its log there, and fetches from there: {BEFORE}",
    )
    stage.start(old)
    stage.until_isr(longer, (old, new, other))
    text = stage.cluster.text_log(old).read_text(errors="replace")
    cut = re.findall(rf"partition={longer}-0, dir=\S+\] Truncating to offset (\d+)", text)
    facts["truncated_to"] = stage.expect(
        "its log says that it was cut at", [int(at) for at in cut[-1:]], [BEFORE]
    )
    stage.until_log_end(longer, old, 12)
    facts["end"] = stage.expect("log ends", stage.log_ends(longer), dict.fromkeys((old, new, other), 12))
    numbers = sorted(read_to_end(stage.bootstrap, longer))
    facts["numbers"] = stage.expect("records of the topic", numbers, [*range(BEFORE), 100, 101, 102])
    stage.tell("records 9, 10 and 11 were acknowledged with acks=1, by the old leader alone: they are lost")
    return facts


def _two_logs(stage: Stage, facts: Facts, longer: str, behind: str) -> None:
    """Let the leader be at 12 where its followers are at 9, and at high watermark 10 where theirs is 9."""
    old, new, other = stage.ids[:3]
    stage.step(
        f"one more record in {behind}: all have it, and its high watermark is known to the leader alone",
        "each follower gets the answer with the record; the next one, which would say the high watermark, is held",
    )
    producer, sent = stage.producer("all"), Sent()
    links = [stage.link(follower, old) for follower in (new, other)]
    for link in links:
        link.hold()
    stage.send_on(producer, behind, range(BEFORE, BEFORE + 1), sent, size=PADDING)
    for link, follower in zip(links, (new, other), strict=True):
        stage.hold_records(link, PADDING)
        link.let_one_pass()
        stage.until_log_end(behind, follower, BEFORE + 1)
    stage.until_sent([producer], sent, 1)
    facts["high_watermarks"] = stage.expect(
        "high watermarks",
        {broker_id: stage.high_watermark(behind, broker_id) for broker_id in (old, new, other)},
        {old: 10, new: 9, other: 9},
    )

    stage.step(
        f"three more records in {longer}, with acks=1",
        "the leader writes them; the answers to its followers are held",
    )
    stage.send(longer, range(BEFORE, BEFORE + 3), acks="1")
    facts["log_ends"] = stage.expect("log ends", stage.log_ends(longer), {old: 12, new: 9, other: 9})
    stage.until(
        f"the checkpoint of broker {old} has both", lambda: set(_checkpoint(stage, old)) >= {longer, behind}
    )
    facts["checkpoint"] = stage.expect(
        f"{CHECKPOINT} of broker {old}, which has all its partitions: high watermark of {longer}",
        _checkpoint(stage, old)[longer],
        BEFORE,
    )


def _elected(stage: Stage, facts: Facts, longer: str, behind: str) -> None:
    old, new, other = stage.ids[:3]
    epoch = stage.partition(behind)["leader_epoch"]
    stage.step(
        f"kill -9 broker {old}; broker {other} cannot reach broker {new} yet",
        f"its session ends, and the first live member of the ISR leads: broker {new}",
    )
    for follower, leader in ((new, old), (other, old), (other, new)):
        stage.link(follower, leader).cut()
    stage.kill(old)
    for topic in (longer, behind):
        stage.until_leader(topic, new)
    with stage.window((new, other), behind):
        _behind_and_beyond(stage, facts, behind, epoch)
    stage.link(other, new).open()
    stage.until_high_watermark(behind, new, 10)
    stage.tell(
        f"once broker {other} fetches from it, the new leader's high watermark is 10: nothing acknowledged is lost"
    )
    for link in (stage.link(new, old), stage.link(other, old)):
        link.open()


def _behind_and_beyond(stage: Stage, facts: Facts, behind: str, epoch: int) -> None:
    """Read from a leader that does not know yet how far its follower is."""
    new, other = stage.ids[1:3]
    found = stage.partition(behind)
    facts["isr"] = stage.expect(f"ISR of {behind}", found["isr"], [new, other])
    facts["epochs"] = stage.expect("leader epoch", (epoch, found["leader_epoch"]), (epoch, epoch + 1))
    facts["new_high_watermark"] = stage.expect(
        "high watermark of the new leader, where the old one's was 10", stage.high_watermark(behind, new), 9
    )
    facts["new_log_end"] = stage.expect("its log end", stage.log_end(behind, new), 10)
    between = stage.fetched(behind, new, 9)
    facts["between"] = stage.expect(
        "a read between both, at 9", (error_name(between.error), between.records), ("NONE", b"")
    )
    beyond = stage.fetched(behind, new, 11)
    facts["beyond"] = stage.expect(
        "a read beyond its log end, at 11", error_name(beyond.error), "OFFSET_OUT_OF_RANGE"
    )
    error, _ = stage.latest(behind, new)
    facts["latest"] = stage.expect(
        "a client that asks for the end is told to ask later", error_name(error), "OFFSET_NOT_AVAILABLE"
    )


def _clients(stage: Stage, facts: Facts, longer: str) -> None:
    old, new, other = stage.ids[:3]
    stage.step(
        "a client finds the new leader through any broker that it has",
        "each broker knows all leaders; an address that does not answer is passed over",
    )
    known = {
        f"{new}": [stage.address(new)],
        f"{other}": [stage.address(other)],
        f"{old} (dead), then {other}": [stage.address(old), stage.address(other)],
    }
    written = {}
    for number, (through, addresses) in enumerate(known.items(), 100):
        producer = stage.producer("all", bootstrap=addresses)
        sent = stage.send(longer, range(number, number + 1), acks="all", producer=producer)
        written[through] = sent.acknowledged[number]
        stage.tell(f"through broker {through}: written at offset {written[through]}")
    facts["through"] = stage.expect("offsets that the new leader gave", list(written.values()), [9, 10, 11])


def _checkpoint(stage: Stage, broker_id: int) -> dict[str, int]:
    """Return the high watermarks that a broker keeps on its disk, of the first partition of each topic."""
    file = stage.cluster.data(broker_id) / f"{LOG_DIRS}-1" / CHECKPOINT
    rows = [line.split() for line in file.read_text(encoding="utf-8").splitlines()]
    return {row[0]: int(row[2]) for row in rows if len(row) == 3 and row[1] == "0"}
