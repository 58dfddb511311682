"""Edge: the documents' stories of consumer groups and their offsets, on brokers of Kafka under our controllers."""

from collections.abc import Callable

import pytest

from ops.stories.stage import Facts

pytestmark = pytest.mark.slow
Story = Callable[[str], Facts]


def test_a_partition_goes_to_one_consumer_of_a_group(story: Story) -> None:
    """A76: of 4 partitions 2 consumers have 2 each, 4 have 1 each, and of 5 one is idle. Another group gets all records."""
    seen = story("groups")
    assert seen["shares"] == {2: [2, 2], 4: [1, 1, 1, 1], 5: [0, 1, 1, 1, 1]}
    assert seen["other_group"] == [4]
    assert seen["read"] == {"group": (40, {1}), "other": (40, {1})}


def test_a_key_chooses_a_partition_by_its_hash(story: Story) -> None:
    """A79: the hash modulo the number of partitions."""
    assert story("groups")["by_hash"]


def test_a_partition_more_leaves_old_records_where_they_are(story: Story) -> None:
    """A80: the new one is empty, later keys are spread over all, its folder is topic-partition, num.partitions is 1."""
    seen = story("groups")
    assert len(seen["grown"]) == 5 and seen["grown"][-1] == 0 and sum(seen["grown"]) == 24
    assert seen["by_new_hash"] and seen["new_has_keys"] and seen["folder"]
    assert seen["default_partitions"] == ("1", "DEFAULT_CONFIG")


def test_every_group_has_one_coordinator_by_its_hash(story: Story) -> None:
    """A82: all brokers name the same one, the leader of the partition that the hash of the group's name chooses."""
    seen = story("groups")
    assert len(seen["coordinators"]) == 12
    assert all(len(brokers) == 1 for brokers in seen["coordinators"].values())
    assert sum(seen["groups_of_brokers"].values()) == 12 and len(seen["groups_of_brokers"]) > 1


def test_three_members_join_and_one_of_them_shares_out(story: Story) -> None:
    """A83: 3 members, 1 leader; every partition is assigned once, all see the same, and an internal topic has it."""
    seen = story("groups")
    assert seen["alone"] == (1, (0, 1, 2, 3))
    assert (seen["leaders"], seen["told_of_members"]) == (1, [0, 0, 3])
    assert (seen["heartbeat"], seen["generation"]) == ("REBALANCE_IN_PROGRESS", [2])
    assert seen["partitions"] == [0, 1, 2, 3]
    assert seen["assigned"] and seen["described"] and seen["stored"]


def test_a_new_group_starts_at_the_newest_position(story: Story) -> None:
    """A77: the log ends at 100, and the group starts at 100."""
    seen = story("offsets")
    assert (seen["begins_at"], seen["first"]) == (100, [100])


def test_what_was_processed_and_not_committed_is_delivered_again(story: Story) -> None:
    """A78: 0 to 4 are processed, 3 is committed: after a restart 3 and 4 are delivered again."""
    seen = story("offsets")
    assert seen["processed"] == [0, 1, 2, 3, 4]
    assert seen["again"] == [3, 4]


def test_a_new_owner_starts_at_the_committed_offset(story: Story) -> None:
    """A84: 57 is committed, and the new owner of a partition starts at 57."""
    assert story("offsets")["handed_over_at"] == 57


def test_automatic_commits_repeat_what_came_after_the_last_one(story: Story) -> None:
    """A85: each 5 s; 3 s of records after a commit the consumer is killed, and these 30 are repeated."""
    seen = story("offsets")
    assert (seen["auto_committed"], seen["repeated"], seen["repeated_from"]) == (50, 30, 50)


def test_a_commit_of_an_earlier_generation_is_refused(story: Story) -> None:
    """A86: a synchronous commit returns once it is stored. 100 fails, 200 succeeds, 200 is stored; a late retry of 100 is
    refused if the group has rebalanced since. Within a generation it would count, so clients repeat none.
    """
    seen = story("offsets")
    assert seen["sync"] == ([3], 3)
    assert seen["generations"] == [1, 2]
    assert (seen["during"], seen["late"], seen["newer"]) == (
        "REBALANCE_IN_PROGRESS",
        "ILLEGAL_GENERATION",
        "NONE",
    )
    assert (seen["stored"], seen["retry"], seen["still_stored"]) == (200, "ILLEGAL_GENERATION", 200)
    assert (seen["within"], seen["overwritten"]) == ("NONE", 100)
