"""Pure: the counts of brokers are those that a walk over all of them finds."""

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from metadata_log.ids import BrokerId
from metadata_log.image.brokers import BrokerImage
from metadata_log.image.metadata_image import EMPTY, Delta, MetadataImage
from quorum.views.broker_counts import BrokerCounts
from tests.support.histories import history_of
from tests.support.unwalked import Unwalked

HISTORY = [*history_of(1, 40)]
BROKER: BrokerImage = next(iter(HISTORY[-1].image.brokers.values()))
STEPS = st.lists(
    st.dictionaries(st.integers(1, 6), st.none() | st.tuples(st.booleans(), st.booleans()), max_size=3),
    max_size=12,
)
"""What each batch makes of brokers: registered, changed (fenced, in controlled shutdown), or unregistered."""


@given(steps=STEPS, restored_at=st.integers(0, 12))
def test_counts_are_those_of_a_walk_and_no_batch_walks(
    steps: list[dict[int, tuple[bool, bool] | None]], restored_at: int
) -> None:
    """Goal: the counts hold after each batch and after a snapshot. Method: a map that refuses a walk."""
    counts, brokers = BrokerCounts(), dict[BrokerId, BrokerImage]()
    for number, step in enumerate(steps):
        touched = {BrokerId(each) for each in step}
        for each, kind in step.items():
            broker_id = BrokerId(each)
            brokers.pop(broker_id, None)
            if kind is not None:
                fenced, stops = kind
                brokers[broker_id] = BROKER._replace(
                    broker_id=broker_id, fenced=fenced, in_controlled_shutdown=stops
                )
        if number == restored_at:
            counts.on_restored(_image(dict(brokers)))
        else:
            counts.on_applied(
                HISTORY[0].batch, b"", _image(Unwalked(dict(brokers))), Delta(brokers=frozenset(touched))
            )
        assert counts.fenced == sum(broker.fenced for broker in brokers.values())
        assert counts.active == sum(not broker.fenced for broker in brokers.values())
        assert counts.in_controlled_shutdown == sum(b.in_controlled_shutdown for b in brokers.values())
        assert counts.first(3) == sorted(brokers)[:3]


def _image(brokers: Any) -> MetadataImage:
    return replace(EMPTY, brokers=brokers)
