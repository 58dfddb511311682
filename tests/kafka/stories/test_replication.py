"""Edge: the documents' stories of replication, on brokers of Kafka under our controllers."""

from collections.abc import Callable

import pytest

from ops.stories.stage import Facts, Stage

pytestmark = pytest.mark.slow
Story = Callable[[str], Facts]


def test_the_high_watermark_is_what_every_member_of_the_isr_has(story: Story) -> None:
    """A10: ends {L: 10, F1: 10, F2: 7} make it 7; F2 reaches 9, and it is 9. A follower learns it later than the leader."""
    seen = story("high-watermark")
    assert (seen["held"], seen["held_high_watermark"]) == ({11: 10, 12: 10, 13: 7}, 7)
    assert (seen["nine"], seen["nine_high_watermark"]) == ({11: 10, 12: 10, 13: 9}, 9)
    assert seen["nine_known_to_slow"] == 7
    assert seen["end"] == {11: 10, 12: 10, 13: 10}


def test_a_write_is_answered_once_the_isr_has_it(story: Story) -> None:
    """A12: three writes wait; where a member of the ISR has the first two of them, these two are done."""
    seen = story("high-watermark")
    assert seen["held_acknowledged"] == 0
    assert seen["nine_acknowledged"] == [7, 8]


def test_the_leader_serves_and_a_follower_reads_to_its_own_rack(story: Story) -> None:
    """A13: three replicas, one of them leads; a follower refuses writes, and reads but those that name a rack (KIP-392)."""
    seen = story("readers")
    assert (seen["replicas"], seen["leader"]) == ([11, 12, 13], 11)
    assert seen["write"] == seen["old_read"] == "NOT_LEADER_OR_FOLLOWER"
    assert seen["log_ends"] == {11: 5, 12: 5, 13: 5}
    assert seen["old_read_at_leader"]
    assert (seen["preferred"], seen["near_read"], seen["own_rack"]) == (12, ("NONE", True, 5), -1)
    assert seen["fetches"] == 3


def test_a_follower_waits_for_less_time_than_the_one_after_which_it_is_removed(story: Story) -> None:
    """A15: 500 ms and 30,000 ms by default; 500 beside 30,000 is taken. The documents refuse 30,000 beside 30,000; Kafka
    4.3.1 takes what is equal, and refuses what is more.
    """
    seen = story("isr")
    assert (seen["wait_ms"], seen["lag_default_ms"]) == (500, 30_000)
    assert seen["accepted"] == {500: True, 30_000: True, 30_001: False}


def test_a_follower_leaves_the_isr_for_two_reasons_and_returns_by_itself(story: Story) -> None:
    """A15: one is silent, one fetches and is too slow. A11: the leader shrinks its ISR, and grows it again when the log end
    is its high watermark. A16: without an operator.
    """
    seen = story("isr")
    assert seen["isr"] == {"silent": [11], "slow": [11]}
    assert seen["silent_end"] == 0
    assert len(seen["slow_ends"]) > 3 and max(seen["slow_ends"]) < 40
    assert seen["returned"] == {"silent": [11, 12], "slow": [11, 13]}
    assert seen["caught_up"] == {11: 40, 13: 40}


def test_a_leader_that_returns_truncates_to_its_high_watermark(story: Story) -> None:
    """A9: its log ends at 12, its checkpointed high watermark is 9: it is truncated to 9, and fetches from there."""
    seen = story("failover")
    assert (seen["log_ends"], seen["checkpoint"]) == ({11: 12, 12: 9, 13: 9}, 9)
    assert seen["truncated_to"] == [9]
    assert seen["end"] == {11: 12, 12: 12, 13: 12}
    assert seen["numbers"] == [0, 1, 2, 3, 4, 5, 6, 7, 8, 100, 101, 102]


def test_the_high_watermark_goes_back_with_a_new_leader(story: Story) -> None:
    """A59: 10 under the old leader, 9 under the new one. Between 9 and the log end a read is empty, beyond it is refused."""
    seen = story("failover")
    assert seen["high_watermarks"] == {11: 10, 12: 9, 13: 9}
    assert (seen["new_high_watermark"], seen["new_log_end"]) == (9, 10)
    assert seen["between"] == ("NONE", b"")
    assert seen["beyond"] == "OFFSET_OUT_OF_RANGE"
    assert seen["latest"] == "OFFSET_NOT_AVAILABLE"
    assert (seen["isr"], seen["epochs"]) == ([12, 13], (0, 1))


def test_a_client_finds_the_new_leader_through_any_broker(story: Story) -> None:
    """A75: through the new leader, through another broker, and through a list that begins with the dead one."""
    assert story("failover")["through"] == [9, 10, 11]


def test_what_was_told_has_the_numbers(story: Story, told: list[str], stage: Stage) -> None:
    """What `metaquorum learn` prints is what the tests look at."""
    story("high-watermark")
    assert "log ends: {11: 10, 12: 10, 13: 7}" in told
    assert "high watermark: 9" in told
