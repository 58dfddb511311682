"""Pure: what a Fetch of Kafka's metadata log gets, and that no two answers name two leaders of one epoch."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metadata_log.ids import NodeId
from quorum.kafka import replies
from quorum.kafka.replies import (
    AT_ZERO,
    FENCED_LEADER_EPOCH,
    NO_LEADER,
    NOT_LEADER_OR_FOLLOWER,
    UNKNOWN_LEADER_EPOCH,
    AwaitSnapshot,
    EpochTable,
    Leadership,
    Position,
    SendDiverging,
    Sending,
    SendRecords,
    SendSnapshot,
    SnapshotName,
    is_at_end,
    leadership,
    refusal,
    reply_to,
)

ONE, TWO = NodeId(1), NodeId(2)
END = 200


def table(*starts: tuple[int, int], start: int = 0, before: int = 0) -> EpochTable:
    made = EpochTable(start, before)
    for epoch, first in starts:
        made.add(epoch, first)
    return made


WHOLE = [(1, 0), (3, 50), (4, 120)]
"""The epochs of a log from offset 0 to END."""
NEWEST = SnapshotName(100, 3)


@pytest.mark.parametrize(
    ("position", "sent"),
    [
        ((0, 0), SendRecords(0)),
        ((10, 1), SendRecords(10)),
        ((50, 1), SendRecords(50)),
        ((51, 3), SendRecords(51)),
        ((120, 3), SendRecords(120)),
        ((199, 4), SendRecords(199)),
        ((200, 4), None),
        ((51, 1), SendDiverging(1, 50)),
        ((60, 2), SendDiverging(1, 50)),
        ((121, 3), SendDiverging(3, 120)),
        ((201, 4), SendDiverging(4, 200)),
        ((300, 9), SendDiverging(4, 200)),
        ((5, 0), SendDiverging(0, 0)),
    ],
)
def test_a_position_in_a_log_from_offset_0_on(position: tuple[int, int], sent: Sending | None) -> None:
    assert reply_to(Position(*position), epochs=table(*WHOLE), high_watermark=END, newest=NEWEST) == sent


@pytest.mark.parametrize(
    ("position", "sent"),
    [
        ((0, 0), SendSnapshot(NEWEST)),
        ((79, 3), SendSnapshot(NEWEST)),
        ((80, 3), SendRecords(80)),
        ((80, 1), SendSnapshot(NEWEST)),
        ((90, 1), SendSnapshot(NEWEST)),
        ((110, 1), SendSnapshot(NEWEST)),
        ((100, 3), SendRecords(100)),
        ((200, 4), None),
        ((121, 3), SendDiverging(3, 120)),
        ((70, 9), AwaitSnapshot()),
    ],
)
def test_a_position_in_a_log_that_begins_later(position: tuple[int, int], sent: Sending | None) -> None:
    """The log is translated from offset 80 on, in epoch 3."""
    epochs = table((4, 120), start=80, before=3)
    assert reply_to(Position(*position), epochs=epochs, high_watermark=END, newest=NEWEST) == sent


def test_a_new_broker_is_sent_the_snapshot_where_the_log_is_longer() -> None:
    def reply(position: Position, newest: SnapshotName | None) -> Sending | None:
        return reply_to(position, epochs=table(*WHOLE), high_watermark=END, newest=newest, is_long=True)

    assert reply(AT_ZERO, NEWEST) == SendSnapshot(NEWEST)
    assert reply(AT_ZERO, None) == AwaitSnapshot()
    assert reply(Position(1, 1), NEWEST) == SendRecords(1)


@pytest.mark.parametrize("newest", [None, SnapshotName(79, 3)])
def test_what_no_snapshot_leads_to_waits(newest: SnapshotName | None) -> None:
    """A topic was restored, and the log is translated from there on: an older snapshot leads below that again."""
    epochs = table((4, 120), start=80, before=3)
    assert reply_to(Position(10, 3), epochs=epochs, high_watermark=END, newest=newest) == AwaitSnapshot()
    assert reply_to(AT_ZERO, epochs=epochs, high_watermark=END, newest=newest) == AwaitSnapshot()


def test_an_empty_log_has_nothing_yet() -> None:
    assert reply_to(AT_ZERO, epochs=EpochTable(), high_watermark=0, newest=None) is None


@pytest.mark.parametrize("start", [1, 49, 50, 51, 120, 130, 200])
def test_a_table_that_begins_later_says_the_same_of_what_is_left(start: int) -> None:
    whole, later = table(*WHOLE), table(*WHOLE)
    later.begin_at(start)
    for epoch in range(later.epoch_before, 6):
        assert later.end_of(epoch, high_watermark=END) == whole.end_of(epoch, high_watermark=END)
    assert later.last_epoch == whole.last_epoch


class History:
    """A log with an epoch for each record."""

    def __init__(self, lengths: list[tuple[int, int]]) -> None:
        self.epochs: list[int] = []
        epoch = 0
        for step, length in lengths:
            epoch += step
            self.epochs += [epoch] * length

    def table(self, start: int, end: int) -> EpochTable:
        made = EpochTable()
        for offset, epoch in enumerate(self.epochs[:end]):
            if epoch > made.last_epoch:
                made.add(epoch, offset)
        made.begin_at(start)
        return made

    def position(self, offset: int) -> Position:
        return Position(offset, self.epochs[offset - 1] if offset else 0)


HISTORIES = st.lists(st.tuples(st.integers(1, 3), st.integers(1, 5)), min_size=1, max_size=6).map(History)


@given(HISTORIES, st.data())
def test_no_prefix_of_the_history_diverges(history: History, data: st.DataObject) -> None:
    """Goal: a broker that has some of our history is never told to truncate. Method: every prefix, whatever the start."""
    end = len(history.epochs)
    start = data.draw(st.integers(0, end))
    newest = data.draw(st.integers(start, end)) if start else None
    name = None if newest is None else SnapshotName(*history.position(newest))
    epochs = history.table(start, end)
    for offset in range(end + 1):
        sent = reply_to(history.position(offset), epochs=epochs, high_watermark=end, newest=name)
        assert is_at_end(history.position(offset), last_epoch=epochs.last_epoch, high_watermark=end) is (
            offset == end
        )
        if offset >= start:
            assert sent == (SendRecords(offset) if offset < end else None)
        else:
            assert sent == (SendSnapshot(name) if name is not None else AwaitSnapshot())


@given(HISTORIES, st.lists(st.tuples(st.integers(1, 6), st.integers(1, 5)), max_size=3), st.data())
def test_another_history_is_cut_back_to_what_is_common_or_replaced(
    history: History, lost: list[tuple[int, int]], data: st.DataObject
) -> None:
    """Goal: a broker whose log is not ours gets ours in the end. Method: it does what it is told, as Kafka's does. An epoch
    belongs to one history, as one controller claims it: those of this log are even, those of what was lost odd.
    """
    history.epochs = [2 * epoch for epoch in history.epochs]
    other = History([])
    other.epochs = history.epochs[: data.draw(st.integers(0, len(history.epochs)))]
    for step, length in lost:
        last = other.epochs[-1] if other.epochs else 0
        other.epochs += [last + 2 * step - 1 + last % 2] * length
    end = len(history.epochs)
    start = data.draw(st.integers(0, end - 1))
    name = SnapshotName(*history.position(data.draw(st.integers(start, end)))) if start else None
    epochs = history.table(start, end)
    log = [(offset, epoch) for offset, epoch in enumerate(other.epochs)]
    for _ in range(2 * len(other.epochs) + 3):
        position = Position(len(log), log[-1][1] if log else 0)
        sent = reply_to(position, epochs=epochs, high_watermark=end, newest=name)
        assert sent is None or not is_at_end(position, last_epoch=epochs.last_epoch, high_watermark=end)
        if isinstance(sent, SendSnapshot):
            assert (sent.name.epoch, sent.name.end_offset) > (position.epoch, position.offset)
            return
        if not isinstance(sent, SendDiverging):
            break
        own_end = max((offset + 1 for offset, epoch in log if epoch <= sent.epoch), default=0)
        del log[min(own_end, sent.end_offset) :]
    if not isinstance(sent, AwaitSnapshot):
        assert [epoch for _, epoch in log] == history.epochs[: len(log)]


# --- who leads


@pytest.mark.parametrize(
    ("claimant", "is_active", "heard", "now"),
    [
        (ONE, True, None, Leadership(5, ONE, is_ours=True)),
        (ONE, False, None, Leadership(5, NO_LEADER, is_ours=False)),
        (ONE, False, TWO, Leadership(5, NO_LEADER, is_ours=False)),
        (TWO, False, TWO, Leadership(5, TWO, is_ours=False)),
        (TWO, False, None, Leadership(5, NO_LEADER, is_ours=False)),
        (TWO, False, NodeId(3), Leadership(5, NO_LEADER, is_ours=False)),
        (None, False, TWO, Leadership(5, NO_LEADER, is_ours=False)),
    ],
)
def test_the_claimant_is_named_or_nobody(
    claimant: NodeId | None, is_active: bool, heard: NodeId | None, now: Leadership
) -> None:
    found = leadership(epoch=5, claimant=claimant, node_id=ONE, is_active=is_active, heard=heard)
    assert found == now


@pytest.mark.parametrize(
    ("asked", "is_ours", "error"),
    [
        (4, True, FENCED_LEADER_EPOCH),
        (4, False, FENCED_LEADER_EPOCH),
        (6, True, UNKNOWN_LEADER_EPOCH),
        (6, False, UNKNOWN_LEADER_EPOCH),
        (5, False, NOT_LEADER_OR_FOLLOWER),
        (5, True, None),
    ],
)
def test_the_epoch_that_is_asked_for_is_judged_first(asked: int, is_ours: bool, error: int | None) -> None:
    assert refusal(asked, Leadership(5, ONE if is_ours else TWO, is_ours=is_ours)) == error
    assert replies.NO_LEADER == -1


@given(
    st.lists(
        st.tuples(
            st.integers(1, 3),
            st.sampled_from([None, 1, 2, 3]),
            st.booleans(),
            st.sampled_from([None, 1, 2, 3]),
        ),
        min_size=1,
    ),
    st.lists(st.sampled_from([1, 2, 3]), min_size=4, max_size=4),
)
def test_no_two_answers_name_two_leaders_of_an_epoch(
    asked: list[tuple[int, int | None, bool, int | None]], claimants: list[int]
) -> None:
    """Goal: no broker is ended by two answers. Method: nodes that know the claimant or do not, at any epoch, lead or do not,
    and hear any leader; as a node is active only by its own claim.
    """
    named: dict[int, NodeId] = {}
    for epoch, node, knows, heard in asked:
        node_id = NodeId(node or 1)
        claimant = NodeId(claimants[epoch]) if knows else None
        found = leadership(
            epoch=epoch,
            claimant=claimant,
            node_id=node_id,
            is_active=claimant == node_id,
            heard=None if heard is None else NodeId(heard),
        )
        if found.leader != NO_LEADER:
            assert named.setdefault(epoch, found.leader) == found.leader
        assert not found.is_ours or found.leader == node_id
