"""Questions that must be refused are asked only where nothing in the run can make them right."""

from dataclasses import replace

import pytest

from metadata_log.ids import BrokerId, Uuid
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.wire.commands import RegisterBroker
from tests.simulation.faults.profiles import PROFILES
from tests.simulation.rules.contrary.brokers import BrokerQuestions
from tests.simulation.rules.contrary.question import STRANGER, Drawing
from tests.simulation.world.cluster import ClusterWorld
from tests.support.decisions import World

ASKED = 60
"""One of five or six registrations names another broker's directory."""


def image_with_a_broker() -> MetadataImage:
    world = World()
    world.run("register 1")
    return world.image


def directories_asked_for(world: ClusterWorld, image: MetadataImage) -> set[Uuid]:
    questions = BrokerQuestions(Drawing(world))
    found: set[Uuid] = set()
    for _ in range(ASKED):
        question = questions.registration(image)
        if question is None:
            continue
        assert isinstance(question.command, RegisterBroker)
        assert question.command.broker_id == STRANGER
        assert question.errors(image)
        found |= {*question.command.log_dirs}
    return found


@pytest.mark.parametrize(
    ("has_data", "unregister_every", "is_asked"),
    [(False, None, True), (True, None, False), (False, 20.0, False)],
)
def test_a_stranger_asks_for_a_directory_only_where_it_stays_taken(
    has_data: bool, unregister_every: float | None, is_asked: bool
) -> None:
    """Goal: the stranger is never registered. A broker whose disk is lost comes back without that directory, and one that is
    removed leaves all of its own: the stranger would be registered with it, be given replicas, and never start.
    """
    profile = replace(PROFILES["calm"], has_data=has_data, unregister_every=unregister_every)
    image = image_with_a_broker()
    world = ClusterWorld(seed=1, profile=profile)
    asked = directories_asked_for(world, image)
    world.loop.close()
    assert bool(asked & {*image.brokers[BrokerId(1)].log_dirs}) == is_asked
