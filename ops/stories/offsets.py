"""Edge: the story of committed offsets: where a group begins and goes on, what is delivered again, and which commits count.

Tests: tests/kafka/stories.
"""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Final

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from ops.stories.groups import consumer
from ops.stories.members import Member, committed, place_offsets_topic
from ops.stories.reader import COMMIT_EVERY_MS, SESSION_MS
from ops.stories.stage import DEADLINE_S, Facts, Stage, StoryFailed, WindowMissed

HANDED_OVER: Final = 57
PER_SECOND: Final = 10
"""Records a second of the documents' example; here they are counted, not waited for."""
FIRST_S: Final = 5
LATER_S: Final = 3
AFTER: Final = 20
"""Records that the killed consumer did not come to."""


def run(stage: Stage) -> Facts:
    """Begin, stop and hand over groups, and commit too late."""
    place_offsets_topic(stage)
    facts: Facts = {}
    _newest(stage, facts)
    _at_least_once(stage, facts)
    _handed_over(stage, facts)
    _automatic(stage, facts)
    _by_hand(stage, facts)
    return facts


def _filled(stage: Stage, about: str, records: int, *, partitions: int = 1) -> str:
    """Return a new topic with so many records in each partition."""
    topic = stage.new_topic(about, [(stage.ids[number % 3],) for number in range(partitions)])
    producer = stage.producer("all")
    for partition in range(partitions):
        for number in range(records):
            producer.produce(topic, partition=partition, value=b"%d" % number)
    if producer.flush(DEADLINE_S):
        raise StoryFailed(f"the records of {topic} were not acknowledged")
    return topic


def _records(stage: Stage, member: Consumer, count: int, what: str) -> list[Message]:
    """Return the next records that a consumer gets."""
    found: list[Message] = []

    def enough() -> bool:
        found.extend(
            message for message in member.consume(count - len(found), timeout=0.05) if not message.error()
        )
        return len(found) >= count

    stage.until(what, enough)
    return found


def _offsets(messages: list[Message]) -> list[int | None]:
    return [message.offset() for message in messages]


def _newest(stage: Stage, facts: Facts) -> None:
    topic = _filled(stage, "newest", 100)
    stage.step(
        "a new group, and a log that ends at 100",
        "by default a group without offsets begins with what comes next",
    )
    member = consumer(stage, f"group-{topic}", topic, auto_offset_reset="latest", enable_partition_eof=True)
    ends: list[int | None] = []

    def is_at_end() -> bool:
        for message in member.consume(10, timeout=0.05):
            error = message.error()
            if error is None:
                raise StoryFailed(
                    f"record {message.offset()} was delivered to a group that begins at the end"
                )
            if error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 librdkafka names it so
                ends.append(message.offset())
        return bool(ends)

    stage.until("it stands at the end", is_at_end)
    facts["begins_at"] = stage.expect("it begins at", ends[-1], 100)
    stage.send(topic, range(100, 101), acks="all")
    facts["first"] = stage.expect(
        "the first record that it gets", _offsets(_records(stage, member, 1, "a record comes")), [100]
    )
    member.close()


def _at_least_once(stage: Stage, facts: Facts) -> None:
    topic = _filled(stage, "again", 5)
    group = f"group-{topic}"
    stage.step(
        "process records 0 to 4, commit 3, and stop", "what is committed is the offset of the next record"
    )
    member = consumer(stage, group, topic)
    facts["processed"] = stage.expect(
        "processed", _offsets(_records(stage, member, 5, "five records come")), [0, 1, 2, 3, 4]
    )
    stored = member.commit(offsets=[TopicPartition(topic, 0, 3)], asynchronous=False)
    facts["sync"] = stage.expect(
        "a synchronous commit returns once it is stored",
        ([one.offset for one in stored or []], committed(stage, group, topic)),
        ([3], 3),
    )
    member.close()
    member = consumer(stage, group, topic)
    facts["again"] = stage.expect(
        "a consumer that starts in its place gets",
        _offsets(_records(stage, member, 2, "two records come")),
        [3, 4],
    )
    member.close()


def _handed_over(stage: Stage, facts: Facts) -> None:
    topic = _filled(stage, "handed-over", HANDED_OVER + 3, partitions=2)
    group = f"group-{topic}"
    stage.step(
        f"one consumer has partitions 0 and 1, and has committed {HANDED_OVER}; then another one joins",
        "it takes one of them, and goes on where the first one was",
    )
    first = consumer(stage, group, topic)
    stage.until("the first one has both", lambda: first.poll(0.05) is None and len(first.assignment()) == 2)
    first.commit(
        offsets=[TopicPartition(topic, number, HANDED_OVER) for number in (0, 1)], asynchronous=False
    )
    second = consumer(stage, group, topic)
    got: list[Message] = []

    def handed_over() -> bool:
        first.poll(0.01)
        got.extend(message for message in second.consume(1, timeout=0.05) if not message.error())
        return bool(got) and len(first.assignment()) == len(second.assignment()) == 1

    stage.until("the second one has one of them", handed_over)
    facts["handed_over_at"] = stage.expect("the first record of the new owner", got[0].offset(), HANDED_OVER)
    for member in (first, second):
        member.close()


def _automatic(stage: Stage, facts: Facts) -> None:
    first, later = FIRST_S * PER_SECOND, LATER_S * PER_SECOND
    topic = _filled(stage, "automatic", first + later + AFTER)
    group = f"group-{topic}"
    stage.step(
        f"automatic commits each {COMMIT_EVERY_MS / 1000:g} s; kill -9 the consumer {later} records after one",
        f"at {PER_SECOND} records a second these are {LATER_S} s of records, and its successor gets them again",
    )
    with _reader(stage, topic, group) as reader:
        _order(reader, first)
        _line(reader, f"processed {first}")
        _line(reader, f"committed {first}")
        facts["auto_committed"] = stage.expect("committed by itself", committed(stage, group, topic), first)
        _order(reader, first + later)
        _line(reader, f"processed {first + later}")
        reader.kill()
        reader.wait()
    if committed(stage, group, topic) != first:
        raise WindowMissed("the consumer committed once more before it was killed")
    stage.tell(f"killed after {first + later} records; it is a member for {SESSION_MS / 1000:g} s more")
    successor = consumer(stage, group, topic)
    rest = AFTER + later
    got = _offsets(_records(stage, successor, rest, "the successor gets the records after the commit"))
    again = [offset for offset in got if offset is not None and offset < first + later]
    facts["repeated"] = stage.expect("records that are delivered again", len(again), later)
    facts["repeated_from"] = stage.expect("from", got[0], first)
    successor.close()


@contextmanager
def _reader(stage: Stage, topic: str, group: str) -> Iterator["subprocess.Popen[str]"]:
    command = (sys.executable, "-m", "ops.stories.reader", ",".join(stage.bootstrap), topic, group)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603
        try:
            yield process
        finally:
            process.kill()


def _order(reader: "subprocess.Popen[str]", count: int) -> None:
    pipe = _pipe(reader.stdin)
    pipe.write(f"{count}\n")
    pipe.flush()


def _line(reader: "subprocess.Popen[str]", wanted: str) -> None:
    """Read what it prints until a line comes."""
    for line in _pipe(reader.stdout):
        if line.strip() == wanted:
            return
    raise StoryFailed(f"the consumer ended before it was at {wanted!r}")


def _pipe(pipe: IO[str] | None) -> IO[str]:
    assert pipe is not None, "the consumer was started with pipes"
    return pipe


def _by_hand(stage: Stage, facts: Facts) -> None:
    topic = _filled(stage, "by-hand", 1)
    group = f"group-{topic}"
    stage.step(
        "a commit of 100 is under way while the group rebalances; then 200 is committed",
        "a commit carries the generation in which it was asked for, and one of an earlier generation is refused",
    )
    with Member(stage, group, topic) as member, Member(stage, group, topic) as other:
        facts["generations"] = [member.join().generation]
        member.begin_to_sync({member.member_id: (0,)})
        member.share()
        other.begin_to_join()
        stage.until("a rebalance begins", lambda: member.heartbeat() == "REBALANCE_IN_PROGRESS")
        member.begin_to_join()
        joined = [each.joined() for each in (member, other)]
        facts["generations"].append(joined[0].generation)
        stage.expect("generations", facts["generations"], [1, 2])
        facts["during"] = stage.expect(
            "commit of 100 by the present generation, before its shares are known",
            member.commit(100),
            "REBALANCE_IN_PROGRESS",
        )
        leader, follower = (member, other) if joined[0].leader == member.member_id else (other, member)
        leader.begin_to_sync({member.member_id: (0,), other.member_id: ()})
        follower.begin_to_sync({})
        for each in (leader, follower):
            each.share()
        facts["late"] = stage.expect(
            "commit of 100 by generation 1", member.commit(100, generation=1), "ILLEGAL_GENERATION"
        )
        facts["newer"] = stage.expect("commit of 200 by generation 2", member.commit(200), "NONE")
        facts["stored"] = stage.expect("stored", committed(stage, group, topic), 200)
        facts["retry"] = stage.expect(
            "100 once more, as at first", member.commit(100, generation=1), "ILLEGAL_GENERATION"
        )
        facts["still_stored"] = stage.expect("stored", committed(stage, group, topic), 200)
        stage.step(
            "100 once more, by generation 2",
            "within a generation the newest commit counts: so clients never repeat an asynchronous one by themselves",
        )
        facts["within"] = stage.expect("answer", member.commit(100), "NONE")
        facts["overwritten"] = stage.expect("stored", committed(stage, group, topic), 100)
