"""The state of a first quorum made of records: the same records, its voters and features, no eligible leader replicas."""

from dataclasses import replace

import pytest

from metadata_log.ids import NodeId
from metadata_log.image.features import metaquorum_version
from metadata_log.records.features import (
    ELIGIBLE_LEADER_REPLICAS_VERSION,
    METADATA_VERSION,
    METADATA_VERSION_LEVEL,
    METAQUORUM_VERSION_LEVEL,
)
from quorum.controller.standby import configured_voters
from quorum.node.beginning import begun, unfit
from quorum.node.config import ControllerSettings, FeatureSettings
from tests.support.lab import settings
from tests.unit.metadata_log.zookeeper.test_imported import WHOLE
from tests.unit.metadata_log.zookeeper.test_topics import tree

FOUND = tree(WHOLE)


def told(node_id: int = 3) -> ControllerSettings:
    return replace(settings(node_id, kafka=True), listen_kafka=("127.0.0.1", 9203))


def test_the_state_has_all_records_and_one_voter() -> None:
    (voter,) = (one for one in configured_voters(told()) if one.node_id == 3)
    image = begun(FOUND.records, settings=told(), voters=[voter], epoch=18, unix_ms=1_700_000_000_000)
    assert (image.quorum.voters, image.quorum.cluster_id) == ((voter,), told().cluster_id)
    assert (image.controller_epoch, image.last_time_ms) == (18, 1_700_000_000_000)
    assert image.end_offset == len(FOUND.records) + 4 + len(image.features) - 2
    assert (image.features[METADATA_VERSION], metaquorum_version(image.features)) == (
        METADATA_VERSION_LEVEL,
        METAQUORUM_VERSION_LEVEL,
    )
    assert len(image.topics.by_id) == 1 and image.topics.counts.leaderless == 2
    assert not image.brokers and not image.controllers and image.claimant is None


def test_all_voters_that_are_given_vote() -> None:
    voters = configured_voters(told())
    image = begun(FOUND.records, settings=told(), voters=reversed(voters), epoch=18, unix_ms=1)
    assert image.quorum.voters == voters


def test_eligible_leader_replicas_wait_until_the_brokers_have_registered() -> None:
    """Goal: a broker of the old cluster says no epoch under which it stopped, and must not leave every ISR for it."""
    (voter,) = (one for one in configured_voters(told()) if one.node_id == 3)
    image = begun(FOUND.records, settings=told(), voters=[voter], epoch=18, unix_ms=1)
    assert ELIGIBLE_LEADER_REPLICAS_VERSION not in image.features
    assert image.features["transaction.version"] == 2


def test_nothing_speaks_against_settings_that_fit() -> None:
    assert [*unfit(FOUND.records, told())] == []


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        (replace(told(), listen_kafka=None), "no [listen] kafka"),
        (replace(told(), node_id=NodeId(9)), "node 9 has no [[voters]] entry"),
        (told(2), "id 2 is a broker's"),
    ],
)
def test_settings_that_do_not_fit_are_named(changed: ControllerSettings, reason: str) -> None:
    (found,) = unfit(FOUND.records, changed)
    assert reason in found


def test_records_that_the_level_of_the_founding_lacks_are_named() -> None:
    scram, tokens = unfit(
        FOUND.records, replace(told(), features=FeatureSettings(founding_metadata_version=10))
    )
    assert (
        "SCRAM credentials from metadata.version 3.5-IV2 on, and the settings found a quorum at 3.5-IV1"
        in scram
    )
    assert "delegation tokens from metadata.version 3.6-IV2 on" in tokens
