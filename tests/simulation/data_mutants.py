"""What stands in for rules that keep the records of a data plane, in the sample host and in the controllers' decisions."""

from typing import Any

from metadata_log.ids import NO_LEADER
from quorum.decide.elections import Election


def joins_early(expand: Any) -> Any:
    """Let followers join an ISR below the high watermark."""

    def joins(host: Any, replica: Any, leading: Any, *follower: Any) -> None:
        before = replica.high_watermark, leading.start_offset
        replica.high_watermark = leading.start_offset = 0
        expand(host, replica, leading, *follower)
        replica.high_watermark, leading.start_offset = before

    return joins


def advances_alone(advance: Any) -> Any:
    """Let a leader's high watermark be the end of its own log."""

    def alone(host: Any, replica: Any, leading: Any) -> None:
        followers, leading.followers = leading.followers, {}
        advance(host, replica, leading)
        leading.followers = followers

    return alone


def advances_with_few(advance: Any) -> Any:
    """Let the high watermark rise while the ISR is smaller than min.insync.replicas."""

    def with_few(host: Any, replica: Any, leading: Any) -> None:
        host._min_isr = lambda _replica: 1
        advance(host, replica, leading)
        del host._min_isr

    return with_few


def truncates_to_the_high_watermark(take_role: Any) -> Any:
    """Let a follower of a new leader cut its log at its own high watermark, as Kafka did before KIP-101."""

    def takes(host: Any, role: Any) -> None:
        replica = host.replicas.get((role.topic_id, role.partition_id))
        epoch = None if replica is None else replica.leader_epoch
        take_role(host, role)
        if replica is not None and replica.leader is not None and replica.leader_epoch != epoch:
            replica.log.truncate(replica.high_watermark)

    return takes


def epoch_of_the_last_record(_original: Any) -> Any:
    return property(lambda log: log.records[-1].leader_epoch if log.records else -1)


def elects_anybody(change: Any) -> Any:
    """Let a controller elect replicas outside the ISR as if they were members."""

    def changes(*args: Any, **rest: Any) -> Any:
        record = change(*args, **rest)
        if record is None or record.leader != NO_LEADER:
            return record
        record = change(*args, **(rest | {"election": Election.UNCLEAN}))
        return record._replace(leader_recovery_state=None)

    return changes
