"""Pure: with which levels a cluster is founded, and what Kafka's format refuses (B77, B80)."""

from typing import Any

import pytest

from metadata_log.errors import InvalidRequest
from metadata_log.metadata_versions import METADATA_VERSIONS, OUR_BROKERS_FROM, formatted_with
from metadata_log.records.configs import BROKER, ConfigRecord
from metadata_log.records.features import FeatureLevelRecord
from metadata_log.records.users import UserScramCredentialRecord
from quorum.decide.founding import Founding, chosen

ALICE = UserScramCredentialRecord("alice", 1, b"salt", b"stored", b"server", 4096, b"k" * 16)


def ask(*levels: tuple[str, int], **more: Any) -> Founding:
    asked: dict[str, Any] = {
        "release": None,
        "features": levels,
        "credentials": (),
        "otherwise": 30,
        "unstable": False,
        "for_kafka": False,
    }
    return chosen(**(asked | more))


@pytest.mark.parametrize("level", [each.level for each in METADATA_VERSIONS])
def test_a_level_alone_founds_what_kafka_formats(level: int) -> None:
    founding = Founding.at(level)
    levels = [FeatureLevelRecord(*each) for each in sorted(formatted_with(level).items())]
    min_isr = [ConfigRecord(BROKER, "", "min.insync.replicas", "2")] if level >= 26 else []
    assert [*founding.records(min_insync_replicas="2")] == levels + min_isr
    assert ask(otherwise=level, unstable=True, for_kafka=level < OUR_BROKERS_FROM) == founding


def test_a_release_chooses_all_levels_and_single_ones_replace_its_own() -> None:
    assert ask(release="4.1") == ask(("metadata.version", 27)) == Founding.at(27)
    assert ask(otherwise=25) == Founding.at(25)
    founding = ask(("eligible.leader.replicas.version", 0), ("group.version", 0), ("kraft.version", 0))
    assert founding.kraft_version == 0
    assert dict(founding.levels) == {"share.version": 1, "streams.version": 1, "transaction.version": 2}
    assert dict(ask(("group.version", 0), ("group.version", 1)).levels)["group.version"] == 1
    assert ask(("metadata.version", 31), unstable=True).metadata_version == 31


def test_users_are_in_the_log_after_the_levels() -> None:
    assert ask(credentials=[ALICE]).records(min_insync_replicas="1")[-1] == ALICE


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (
            {"release": "4.1", "features": [("metadata.version", 27)]},
            "Use --release-version instead of --feature metadata.version=X to avoid ambiguity.",
        ),
        ({"release": "9.9"}, "Unknown metadata.version '9.9'. Supported metadata.version are: 3.3-IV3, "),
        ({"release": "27"}, "Unknown metadata.version '27'"),
        ({"release": "4.4"}, "Unknown metadata.version '4.4'. Supported metadata.version are: 3.3-IV3, "),
        ({"features": [("metadata.version", 31)]}, "metadata.version 4.4-IV0 is not yet stable"),
        (
            {"features": [("metadata.version", 99)]},
            "No MetadataVersion with feature level 99. Valid feature levels are from 7 to 31.",
        ),
        (
            {"features": [("foo", 1)]},
            "Unsupported feature: foo. Supported features are: eligible.leader.replicas.version, group.version, kraft",
        ),
        ({"features": [("metaquorum.version", 4)]}, "Unsupported feature: metaquorum.version"),
        ({"features": [("group.version", 9)]}, "No feature:group.version with feature level 9"),
        ({"features": [("kraft.version", 2)]}, "No feature:kraft.version with feature level 2"),
        (
            {"release": "3.9", "features": [("eligible.leader.replicas.version", 1)]},
            "eligible.leader.replicas.version could not be set to 1 because it depends on metadata.version level 23",
        ),
        (
            {"release": "3.4", "credentials": [ALICE], "for_kafka": True},
            "SCRAM is only supported in metadata.version 3.5-IV2 or later.",
        ),
        ({"release": "3.6"}, "without [listen] kafka it must be at least 17"),
    ],
)
def test_what_kafkas_format_refuses_is_refused(asked: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        ask(**asked)
    assert refused.value.message.startswith(told) or told in refused.value.message
