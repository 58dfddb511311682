"""Edge: a record that older nodes do not know is refused below its level."""

import pytest

from metadata_log.errors import UnsupportedVersion
from metadata_log.records.brokers import UnregisterBrokerRecord
from metadata_log.records.features import METAQUORUM_VERSION, FeatureLevelRecord
from metadata_log.records.quotas import ClientQuotaRecord
from metadata_log.records.tokens import DelegationTokenRecord
from quorum.decide.levels import check_level
from tests.support.decisions import World


def test_a_type_is_written_from_its_level_on() -> None:
    world = World()
    for level in (1, 3):
        world.write([FeatureLevelRecord(METAQUORUM_VERSION, level)])
        with pytest.raises(
            UnsupportedVersion, match=f"quotas need metaquorum.version 4, .* at {level}: upgrade"
        ):
            check_level(world.image, ClientQuotaRecord, "quotas")
        check_level(world.image, UnregisterBrokerRecord, "removals")
    world.write([FeatureLevelRecord(METAQUORUM_VERSION, 4)])
    check_level(world.image, ClientQuotaRecord, "quotas")
    with pytest.raises(UnsupportedVersion, match=r"tokens need metaquorum.version 5, .* at 4: upgrade"):
        check_level(world.image, DelegationTokenRecord, "delegation tokens")
    world.write([FeatureLevelRecord(METAQUORUM_VERSION, 5)])
    check_level(world.image, DelegationTokenRecord, "delegation tokens")
