"""Edge: the settings that count, by their layers (B83)."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from metadata_log import limits
from metadata_log.kafka_settings import BROKER_SETTINGS, SYNONYMS, TOPIC_SETTINGS
from metadata_log.records.configs import BROKER, TOPIC, ConfigRecord
from quorum.decide.config_types import BROKER_CONFIGS, TOPIC_CONFIGS, check_topic_configs
from quorum.decide.described_configs import (
    ConfigSource,
    DescribedConfig,
    describe_broker_configs,
    describe_cluster_configs,
    describe_topic_configs,
)
from quorum.decide.effective_configs import effective_config
from quorum.node.config import (
    DelegationTokenSettings,
    ElectionSettings,
    LogSettings,
    SnapshotSettings,
    TimingSettings,
    TopicSettings,
)
from tests.support.decisions import CONTROLLER, World

NODE = int(CONTROLLER)
TOPIC_SOURCE, OF_BROKER, OF_CLUSTER = ConfigSource.TOPIC, ConfigSource.BROKER, ConfigSource.CLUSTER
STATIC, DEFAULT = ConfigSource.STATIC, ConfigSource.DEFAULT


def a_world(*settings: tuple[int, str, str, str]) -> World:
    world = World()
    for line in ("register 1", "heartbeat 1", "create t on=1"):
        world.run(line)
    world.write([ConfigRecord(*one) for one in settings])
    return world


def named(described: Sequence[DescribedConfig], name: str) -> DescribedConfig:
    (found,) = [one for one in described if one.name == name]
    return found


LAYERS = [
    (TOPIC, "t", "min.insync.replicas", "5"),
    (BROKER, str(NODE), "min.insync.replicas", "4"),
    (BROKER, "", "min.insync.replicas", "3"),
]


@pytest.mark.parametrize(
    ("settings", "static", "expected"),
    [
        (
            LAYERS,
            "2",
            [("5", TOPIC_SOURCE), ("4", OF_BROKER), ("3", OF_CLUSTER), ("2", STATIC), ("1", DEFAULT)],
        ),
        (LAYERS[1:], "2", [("4", OF_BROKER), ("3", OF_CLUSTER), ("2", STATIC), ("1", DEFAULT)]),
        (LAYERS[2:], "2", [("3", OF_CLUSTER), ("2", STATIC), ("1", DEFAULT)]),
        ([], "2", [("2", STATIC), ("1", DEFAULT)]),
        ([], "1", [("1", DEFAULT)]),
    ],
)
def test_the_uppermost_layer_counts(
    settings: list[tuple[int, str, str, str]], static: str, expected: list[tuple[str, ConfigSource]]
) -> None:
    """B83: topic, broker, cluster, settings file, default; what decisions rest on is the same value."""
    world = a_world(*settings)
    static_configs = {"min.insync.replicas": static}
    described = describe_topic_configs(world.image.configs, "t", node_id=NODE, static=static_configs)
    found = named(described, "min.insync.replicas")
    assert [(one.value, one.source) for one in found.synonyms] == expected
    assert (found.value, found.source) == expected[0]
    context = replace(world.context(), static_configs=static_configs, node_id=NODE)
    assert effective_config(context, "t", "min.insync.replicas") == expected[0][0]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("unclean.leader.election.enable", "false"),
        ("min.insync.replicas", "1"),
        ("retention.ms", "604800000"),
        ("segment.bytes", "1073741824"),
    ],
)
def test_a_new_topic_has_the_defaults(name: str, value: str) -> None:
    """A73, B98: the value that counts, and where it comes from."""
    world = a_world()
    found = named(describe_topic_configs(world.image.configs, "t", node_id=NODE, static={}), name)
    assert (found.value, found.source) == (value, DEFAULT)
    if name not in ("retention.ms", "segment.bytes"):  # no decision rests on these
        assert effective_config(world.context(), "t", name) == value


TOPICS, ELECTIONS, LOG, TIMING = TopicSettings(), ElectionSettings(), LogSettings(), TimingSettings()
SNAPSHOTS, TOKENS = SnapshotSettings(), DelegationTokenSettings()
DEFAULTS: dict[str, tuple[int | None, int]] = {
    "num.partitions": (TOPICS.num_partitions, 1),
    "min.insync.replicas": (TOPICS.min_insync_replicas, 1),
    "default.replication.factor": (TOPICS.default_replication_factor, 1),
    "leader.imbalance.check.interval.seconds": (ELECTIONS.leader_imbalance_check_interval_seconds, 300),
    "unclean.leader.election.interval.ms": (ELECTIONS.unclean_leader_election_interval_ms, 300_000),
    "broker.session.timeout.ms": (TIMING.session_timeout_ms, 9_000),
    "initial.broker.registration.timeout.ms": (limits.REGISTRATION_TIMEOUT_MS, 60_000),
    "request.timeout.ms": (limits.SHUTDOWN_TIMEOUT_MS, 30_000),
    "controller.quorum.election.timeout.ms": (TIMING.election_timeout_min_ms, 1_000),
    "metadata.log.segment.bytes": (LOG.segment_bytes, 1 << 30),
    "metadata.log.segment.ms": (None, 7 * 24 * 3600 * 1000),
    "metadata.max.retention.bytes": (LOG.retention_bytes, 100 << 20),
    "metadata.max.retention.ms": (LOG.retention_ms, 7 * 24 * 3600 * 1000),
    "metadata.max.idle.interval.ms": (limits.QUIET_MARK_MS, 500),
    "metadata.log.max.record.bytes.between.snapshots": (SNAPSHOTS.bytes, 20 << 20),
    "metadata.log.max.snapshot.interval.ms": (SNAPSHOTS.age_ms, 3_600_000),
    "delegation.token.max.lifetime.ms": (TOKENS.max_lifetime_ms, 7 * 24 * 3600 * 1000),
    "delegation.token.expiry.time.ms": (TOKENS.expiry_time_ms, 24 * 3600 * 1000),
    "delegation.token.expiry.check.interval.ms": (TOKENS.expiry_check_interval_ms, 3_600_000),
}
"""By the name in Kafka: our default (None: there is none) and Kafka's, which tests/differential/test_settings.py reads."""


def test_b98_defaults_of_the_controllers_are_kafkas_or_are_named() -> None:
    """B98. Method: Kafka's numbers against those of the settings; each that differs is in the table of docs/kafka.md."""
    page = (Path(__file__).resolve().parents[4] / "docs" / "kafka.md").read_text()
    table = page.partition("## Defaults that are not Kafka's")[2].partition("\n## ")[0]
    named_there = {name for name, (_, kafkas) in DEFAULTS.items() if f"`{name}` {kafkas}" in table}
    assert named_there == {name for name, (ours, kafkas) in DEFAULTS.items() if ours != kafkas}
    for name in named_there:
        ours = DEFAULTS[name][0]
        row = next(line for line in table.splitlines() if f"`{name}`" in line)
        assert f"| {'none' if ours is None else ours} |" in row


def test_a_broker_sees_its_own_layers() -> None:
    world = a_world((BROKER, "1", "log.roll.ms", "7"), (BROKER, "", "log.roll.ms", "9"))
    configs = world.image.configs
    for node_id, value, source in ((1, "7", OF_BROKER), (2, "9", OF_CLUSTER)):
        found = named(describe_topic_configs(configs, "t", node_id=node_id, static={}), "segment.ms")
        assert (found.value, found.source) == (value, source)
        assert {one.name for one in found.synonyms} == {"log.roll.ms"}
        own = named(describe_broker_configs(configs, node_id, static={}), "log.roll.ms")
        assert (own.value, own.source) == (value, source)
    (only,) = describe_cluster_configs(configs)
    assert (only.name, only.value, only.source) == ("log.roll.ms", "9", OF_CLUSTER)


def test_every_setting_is_described_with_its_type_and_default() -> None:
    described = describe_topic_configs(a_world().image.configs, "t", node_id=NODE, static={})
    assert {one.name for one in described} == set(TOPIC_CONFIGS) - {"internal.segment.bytes"}
    assert [one.name for one in described] == sorted(one.name for one in described)
    retention = named(described, "retention.ms")
    assert retention == DescribedConfig(
        "topic", "t", "retention.ms", "604800000", DEFAULT, "LONG", False, False, ()
    )
    segment = named(described, "segment.bytes")
    assert [(one.name, one.value) for one in segment.synonyms] == [("log.segment.bytes", "1073741824")]
    check_topic_configs({one.name: one.value or "" for one in described})
    assert set(BROKER_SETTINGS) == set(BROKER_CONFIGS)
    assert set(SYNONYMS) <= set(TOPIC_SETTINGS) and set(SYNONYMS.values()) <= set(BROKER_SETTINGS)
    for name, synonym in SYNONYMS.items():
        default = BROKER_SETTINGS[synonym].default
        assert default in (None, TOPIC_SETTINGS[name].default), name


def test_a_secret_has_no_value_in_any_layer() -> None:
    world = a_world(
        (BROKER, "1", "ssl.keystore.password", "a"),
        (BROKER, "1", "listener.name.x.ssl.key.password", "b"),
        (BROKER, "1", "ssl.keystore.certificate.chain", "c"),
    )
    described = describe_broker_configs(world.image.configs, 1, static={})
    for name in (
        "ssl.keystore.password",
        "listener.name.x.ssl.key.password",
        "ssl.keystore.certificate.chain",
    ):
        found = named(described, name)
        assert found.is_sensitive and found.value is None and found.source is OF_BROKER
        assert {one.value for one in found.synonyms} == {None}


def test_what_is_set_for_a_listener_stands_over_what_is_set_for_all() -> None:
    world = a_world(
        (BROKER, "1", "listener.name.x.ssl.protocol", "TLS"), (BROKER, "1", "ssl.protocol", "TLSv1.2")
    )
    found = named(describe_broker_configs(world.image.configs, 1, static={}), "listener.name.x.ssl.protocol")
    assert [(one.name, one.value, one.source) for one in found.synonyms] == [
        ("listener.name.x.ssl.protocol", "TLS", OF_BROKER),
        ("ssl.protocol", "TLSv1.2", OF_BROKER),
        ("ssl.protocol", "TLSv1.3", DEFAULT),
    ]


def test_a_setting_that_kafka_does_not_know_is_described_as_such() -> None:
    world = a_world((BROKER, "1", "of.mine", "5"))
    found = named(describe_broker_configs(world.image.configs, 1, static={}), "of.mine")
    assert (found.type, found.read_only, found.value, found.is_sensitive) == ("UNKNOWN", True, None, True)
    assert not named(describe_broker_configs(world.image.configs, 1, static={}), "num.io.threads").read_only
