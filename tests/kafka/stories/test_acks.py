"""Edge: the documents' story of acks, on brokers of Kafka: which acknowledged records are kept, and which are lost."""

from collections.abc import Callable

import pytest

from ops.stories.stage import Facts

pytestmark = pytest.mark.slow
Story = Callable[[str], Facts]


def test_acks_0_1_and_all(story: Story) -> None:
    """A65: 0 is no acknowledgement (the client does not even learn an offset), 1 is the leader's log, all is the whole ISR.
    A81: these are the three modes of delivery.
    """
    seen = story("acks")
    assert seen["offsets_known"] == {"0": False, "1": True, "all": True}
    assert seen["leader_lost"] == {"none": 173, "one": 123, "one-clean": 123, "all": 0, "min-isr": 0}


def test_a_controller_that_is_lost_takes_no_records_with_it(story: Story) -> None:
    """A66: records are lost with a leader's broker, not with a controller; where both die at once, no more than that."""
    seen = story("acks")
    assert seen["controller_lost"] == {"0": 0, "1": 0, "all": 0}
    assert seen["both_lost"] == {"one": 15_286, "all": 14_238}


def test_acks_1_first_failure(story: Story) -> None:
    """A67: broker 3 is 7456 behind, broker 1 is 123 behind, broker 2 dies: broker 1 leads, 123 records are lost."""
    seen = story("acks")
    assert seen["behind"] == {12: 0, 11: 123, 13: 7456}
    assert seen["isr_before"]["one"] == [11, 12, 13]
    assert seen["leader_lost"]["one"] == 123
    # All have 1,000 and 123 at first; broker 1 has 7,456 - 123 of those that follow.
    assert seen["leader_kept"]["one"] == 1_000 + 123 + 7_456 - 123


def test_acks_1_second_failure(story: Story) -> None:
    """A68: broker 3 is 15286 behind and out of sync, broker 1 dies. Unclean: broker 3 leads, 15286 lost, 15409 in all. Else
    nobody leads, reads and writes are refused until broker 1 returns, and nothing more is lost.
    """
    seen = story("acks")
    assert seen["behind_again"] == 15_286
    assert (seen["one_leader"], seen["both_lost"]["one"], seen["lost_with_acks_1"]) == (13, 15_286, 15_409)
    refused = (-1, "NOT_LEADER_OR_FOLLOWER", "NOT_LEADER_OR_FOLLOWER")
    assert seen["refused_without_leader"]["one-clean"] == refused
    assert seen["returned"]["one-clean"] == 0
    assert seen["still_lost"] == 15_286


def test_acks_all_waits_for_the_slowest_member_of_the_isr(story: Story) -> None:
    """A69: the slow one needs 4000 ms and the quick one 250: no acknowledgement before both have it; then the slow one has
    left, and the quick one alone counts. The broker's own clock makes these times lower bounds.
    """
    seen = story("acks")
    assert seen["slow_ms"] >= 4_000
    assert seen["quick_ms"] >= 250
    assert seen["isr_before"]["all"] == [11, 12]


def test_acks_all_loses_nothing_until_an_unclean_election(story: Story) -> None:
    """A70: broker 2 dies: broker 1 leads, nothing is lost, ISR [1]. Broker 1 dies: unclean, broker 3 leads, 14238 lost;
    else nobody leads.
    """
    seen = story("acks")
    assert (seen["leader_lost"]["all"], seen["isr_after"]["all"]) == (0, [11])
    assert seen["leader_kept"]["all"] == 1_000 + 123 + 1 + 14_238
    assert (seen["all_leader"], seen["both_lost"]["all"]) == (14, 14_238)
    assert seen["refused_without_leader"]["all-clean"][0] == -1
    assert seen["returned"]["all-clean"] == 0


def test_min_insync_replicas_loses_nothing_and_refuses(story: Story) -> None:
    """A71: ISR [1, 2], broker 2 dies: 0 lost, and the next write is refused with NOT_ENOUGH_REPLICAS. Where the ISR shrinks
    below it after the append, Kafka 4.3.1 answers REQUEST_TIMED_OUT: its high watermark stands still then (KIP-966).
    """
    seen = story("acks")
    assert seen["isr_before"]["min-isr"] == [11, 12]
    assert (seen["leader_lost"]["min-isr"], seen["isr_after"]["min-isr"]) == (0, [11])
    assert seen["refused"] == "NOT_ENOUGH_REPLICAS"
    assert seen["shrank_after_append"] == ("REQUEST_TIMED_OUT", 0, 1)


def test_unclean_elections_are_off_by_default(story: Story) -> None:
    """A73: a topic that sets nothing has false, and the source of that is the default."""
    assert story("acks")["unclean_default"] == ("false", "DEFAULT_CONFIG")
