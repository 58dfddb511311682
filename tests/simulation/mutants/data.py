"""What stands in for rules that keep the records of a data plane, in the sample host and in the controllers' decisions."""

from typing import Any, Final

from metadata_log.ids import NO_LEADER
from quorum.decide.elections import Election
from tests.simulation.mutants.mutant import Directed, Mutant, Seeds, always, leaves_cleanly

_SAMPLE_HOST_TESTS: Final = "tests/unit/support/test_sample_host.py"


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


def _the_committed_isr(_original: Any) -> Any:
    return property(lambda leading: {*leading.isr})


MUTANTS: Final = (
    Mutant(
        "joins-below-the-high-watermark",
        "the sample host's leader takes followers into the ISR that lack committed records",
        "tests.support.sample_host:SampleHost._expand",
        joins_early,
        Seeds("brokers", 12),
    ),
    Mutant(
        "acknowledges-alone",
        "the sample host's leader acknowledges what no follower has",
        "tests.support.sample_host:SampleHost._advance",
        advances_alone,
        Seeds("brokers", 4),
    ),
    Mutant(
        "acknowledges-with-few",
        "the sample host's high watermark rises while the ISR is smaller than min.insync.replicas",
        "tests.support.sample_host:SampleHost._advance",
        advances_with_few,
        Seeds("brokers", 12),
    ),
    Mutant(
        "appends-with-few",
        "the sample host ignores min.insync.replicas",
        "tests.support.sample_host:SampleHost._min_isr",
        always(1),
        Seeds("brokers", 12),
    ),
    Mutant(
        "truncates-to-the-high-watermark",
        "a follower of a new leader cuts its log at its own high watermark, not where the epochs part",
        "tests.support.sample_host:SampleHost._take_role",
        truncates_to_the_high_watermark,
        Seeds("brokers", 25),
    ),
    Mutant(
        "fetches-by-its-last-record",
        "a follower does not name the epoch in which it led without appending",
        "tests.support.replica_log:ReplicaLog.last_epoch",
        epoch_of_the_last_record,
        Directed(
            f"{_SAMPLE_HOST_TESTS}::test_a_leader_that_appended_nothing_forgets_its_epoch_when_it_follows"
        ),
    ),
    Mutant(
        "elects-outside-the-isr",
        "where no member of the ISR can lead, another replica is elected as if it were one",
        "quorum.decide.elections:change",
        elects_anybody,
        Seeds("brokers", 20),
    ),
    Mutant(
        "power-loss-is-clean",
        "a broker that lost power stays eligible to lead what it lost",
        "quorum.decide.brokers:_walk_out",
        leaves_cleanly,
        Seeds("brokers", 20),
    ),
    Mutant(
        "commits-without-a-proposed-member",
        "the sample host's high watermark passes a member whose joining is proposed",
        "tests.support.sample_host:Leading.maximal_isr",
        _the_committed_isr,
        Directed(f"{_SAMPLE_HOST_TESTS}::test_a_member_that_is_proposed_holds_the_high_watermark_already"),
    ),
)
