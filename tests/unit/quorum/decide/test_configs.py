"""Edge: configs: names, values, secrets, and the records written."""

import gzip
import hmac
import json
from pathlib import Path

import pytest
from msgspec.structs import replace

import tests.golden
from metadata_log.digest import hex_of_text
from metadata_log.errors import InvalidConfig, InvalidRequest
from metadata_log.ids import BrokerId
from metadata_log.image.configs import config_line, configs_items
from metadata_log.records.configs import (
    BROKER,
    CLIENT_METRICS,
    GROUP,
    MASK_KEY_BYTES,
    TOPIC,
    ConfigRecord,
    is_sensitive,
)
from metadata_log.records.declaration import mask, shown
from metadata_log.records.features import ELIGIBLE_LEADER_REPLICAS_VERSION, FeatureLevelRecord
from metadata_log.records.registry import to_json
from quorum.decide.config_types import TOPIC_CONFIGS, check_broker_configs, check_topic_configs
from quorum.decide.configs import ELIGIBLE_CLEARED, AlterConfigs, ConfigsAltered
from quorum.decide.described_configs import describe_cluster_configs
from quorum.decide.effective_configs import min_isr_number
from quorum.decide.registry import decide
from quorum.node.config import TopicSettings
from tests.support.decisions import World, creation

GOLDEN = Path(tests.golden.__path__[0]) / "kafka"


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        (
            "cleanup.policy",
            ("compact", "delete", "compact,delete", "compact , delete", "", "delete,delete"),
            ("x", "compact,", ","),
        ),
        ("compression.gzip.level", ("-1", "1", "9"), ("0", "10", "")),
        ("compression.type", ("zstd", "producer"), ("ZSTD", "none")),
        ("min.cleanable.dirty.ratio", ("0", "1", "0.5", ".5", "1e-1"), ("1.1", "-0.1", "nan", "half", "٠")),
        ("min.insync.replicas", ("1", "+2", " 3 "), ("0", "1.5", "2147483648", "1_000", "٣")),
        ("retention.ms", ("-1", "9223372036854775807"), ("-2", "9223372036854775808", "1h")),
        ("retention.bytes", ("-1", "-5"), ("x",)),
        ("segment.bytes", ("1048576",), ("1048575",)),
        ("message.timestamp.type", ("CreateTime",), ("createtime",)),
        ("preallocate", ("true", "FALSE"), ("yes", "1")),
        (
            "leader.replication.throttled.replicas",
            ("", "*", "0:1,1:2", "0:1,", ",", ",*"),
            ("0", "0:1;1:2", "*,0:1", "*,*"),
        ),
    ],
)
def test_values(name: str, good: tuple[str, ...], bad: tuple[str, ...]) -> None:
    for value in good:
        check_topic_configs({name: value})
    for value in bad:
        with pytest.raises(InvalidConfig, match=name):
            check_topic_configs({name: value})


@pytest.mark.parametrize(("records_max", "parts"), [(100, 1), (8, 1), (7, 2), (3, 3), (2, 4)])
def test_who_is_eligible_is_cleared_in_parts_before_the_setting(records_max: int, parts: int) -> None:
    """B40, C16: seven partitions, and the setting in the last part, beside what then is left."""
    world = World()
    for line in ("register 1", "heartbeat 1", "register 2", "heartbeat 2"):
        world.run(line)
    world.write([FeatureLevelRecord(ELIGIBLE_LEADER_REPLICAS_VERSION, 1)])
    world.run("set cluster: min.insync.replicas=2")
    world.run("create a on=1,2/1,2/1,2/1,2")
    world.run("create b on=1,2/1,2/1,2")
    world.run("heartbeat 2 fence")
    world.records_max = records_max
    command = AlterConfigs(resource_type=BROKER, resource_name="", set={"min.insync.replicas": "1"}, unset=())
    decisions = [world.decide(command)]
    while decisions[-1].more:
        decisions.append(world.decide(command))
    sizes = [len(decision.records) for decision in decisions]
    assert (len(sizes), sum(sizes)) == (parts, 8)
    assert max(sizes) <= records_max
    assert decisions[-1].records[0] == ConfigRecord(BROKER, "", "min.insync.replicas", "1")
    assert [type(decision.outcome) for decision in decisions] == [type(None)] * (parts - 1) + [ConfigsAltered]
    for decision in decisions[:-1]:
        assert decision.cause is not None and decision.cause.code == ELIGIBLE_CLEARED
    assert not world.image.topics.index.eligible


@pytest.mark.parametrize(
    ("topic", "value", "error"),
    [
        ("", "x", "INVALID_REQUEST"),
        ("a b", "x", "INVALID_TOPIC_EXCEPTION"),
        ("..", "1", "INVALID_TOPIC_EXCEPTION"),
        ("none", "x", "INVALID_CONFIG"),
        ("none", "1", "UNKNOWN_TOPIC_OR_PARTITION"),
    ],
)
def test_the_topics_name_is_judged_before_the_value_and_that_before_the_topic(
    topic: str, value: str, error: str
) -> None:
    """B83: in Kafka's order, also where the topic does not exist."""
    command = AlterConfigs(
        resource_type=TOPIC, resource_name=topic, set={"min.insync.replicas": value}, unset=()
    )
    refusal = World().decide(command).refusal
    assert refusal is not None and refusal.error == error


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(InvalidConfig, match=r"no\.such"):
        check_topic_configs({"no.such": "1"})
    assert len(TOPIC_CONFIGS) > 30


def test_settings_that_contradict_each_other() -> None:
    with pytest.raises(InvalidConfig):
        check_topic_configs({"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "9"})


@pytest.mark.parametrize("value", ["true", "TRUE", " true "])
def test_tiered_storage_is_refused(value: str) -> None:
    """B83: Kafka 4.3.1 refuses it while remote.log.storage.system.enable is false; `B83-remote-storage` has its answers."""
    with pytest.raises(InvalidConfig, match="brokers have no remote storage"):
        check_topic_configs({"remote.storage.enable": value})
    check_topic_configs({"remote.storage.enable": "false", "remote.log.delete.on.disable": "true"})


@pytest.mark.parametrize(
    ("after", "refusal"),
    [
        ({"remote.storage.enable": "true", "retention.ms": "5"}, "brokers have no remote storage"),
        ({"remote.storage.enable": "false"}, "cannot be turned off while its remote data stays"),
        ({}, "cannot be turned off while its remote data stays"),
        ({"remote.storage.enable": "false", "remote.log.delete.on.disable": "true"}, None),
        ({"remote.log.delete.on.disable": "true"}, None),
    ],
)
def test_a_topic_that_has_tiers_loses_them_with_their_data(
    after: dict[str, str], refusal: str | None
) -> None:
    """B83: as Kafka 4.3.1 decides where the system is on, and the topic had it."""
    before = {"remote.storage.enable": "true"}
    if refusal is None:
        check_topic_configs(after, before)
    else:
        with pytest.raises(InvalidConfig, match=refusal):
            check_topic_configs(after, before)


TIERED = {"remote.storage.enable": "true"}


@pytest.mark.parametrize(
    ("settings", "refusal"),
    [
        ({}, None),
        ({"cleanup.policy": "compact"}, "needs cleanup.policy=delete"),
        ({"cleanup.policy": "delete,compact"}, "needs cleanup.policy=delete"),
        ({"cleanup.policy": ""}, None),
        ({"cleanup.policy": "delete,delete"}, None),
        ({"local.retention.ms": "604800000"}, None),
        ({"local.retention.ms": "604800001"}, "exceeds retention.ms 604800000"),
        ({"local.retention.ms": "-1"}, "exceeds retention.ms"),
        ({"local.retention.ms": "-1", "retention.ms": "-1"}, None),
        ({"local.retention.ms": "9", "retention.ms": "8"}, "exceeds retention.ms 8"),
        ({"local.retention.ms": "-2", "retention.ms": "8"}, None),
        ({"local.retention.bytes": "9"}, None),
        ({"local.retention.bytes": "9", "retention.bytes": "8"}, "exceeds retention.bytes 8"),
        ({"local.retention.bytes": "9", "retention.bytes": "-5"}, None),
        ({"remote.log.copy.disable": "true"}, None),
        ({"remote.log.copy.disable": "true", "local.retention.ms": "9"}, "must be retention.ms"),
        ({"remote.log.copy.disable": "true", "local.retention.ms": "9", "retention.ms": "9"}, None),
        ({"remote.log.copy.disable": "true", "local.retention.bytes": "9"}, "must be retention.bytes -1"),
    ],
)
def test_where_brokers_have_a_remote_storage_a_topic_with_tiers_has_settings_that_suit_them(
    settings: dict[str, str], refusal: str | None
) -> None:
    """B83: as LogConfig of Kafka 4.3.1 where remote.log.storage.system.enable is true."""
    if refusal is None:
        check_topic_configs(TIERED | settings, has_remote_storage=True)
    else:
        with pytest.raises(InvalidConfig, match=refusal):
            check_topic_configs(TIERED | settings, has_remote_storage=True)
    check_topic_configs(settings)


def test_the_controllers_settings_say_whether_brokers_have_a_remote_storage() -> None:
    """B83: at a creation, and at a change; the setting of the log does not count, as in Kafka."""
    assert TopicSettings().static_configs == {"min.insync.replicas": "1"}
    for static, error in (
        (TopicSettings(), "INVALID_CONFIG"),
        (TopicSettings(remote_log_storage_system_enable=True), None),
    ):
        world = world_with_topic()
        world.run("set cluster: remote.log.storage.system.enable=true")
        context = replace(world.context(), static_configs=static.static_configs)
        for command in (
            altered(TOPIC, "t", TIERED),
            creation("new", assignment=((BrokerId(1),),), configs=TIERED),
        ):
            decision = decide(context, command)
            assert (decision.refusal and decision.refusal.error) == error


def world_with_topic() -> World:
    world = World()
    for line in ("register 1", "heartbeat 1", "create t on=1 retention.ms=5"):
        world.run(line)
    return world


def altered(kind: int, name: str, set_: dict[str, str], *unset: str) -> AlterConfigs:
    return AlterConfigs(resource_type=kind, resource_name=name, set=set_, unset=unset)


def test_a_change_answers_with_what_it_wrote_alone() -> None:
    """Goal: the answer, which the log keeps, does not grow with the settings of a resource."""
    world = world_with_topic()
    world.run("set topic:t delete.retention.ms=9")
    decision = world.decide(altered(TOPIC, "t", {"segment.ms": "7", "flush.ms": "1"}, "retention.ms"))
    assert list(decision.records) == [
        ConfigRecord(TOPIC, "t", "flush.ms", "1"),
        ConfigRecord(TOPIC, "t", "retention.ms", None),
        ConfigRecord(TOPIC, "t", "segment.ms", "7"),
    ]
    assert decision.outcome == ConfigsAltered(TOPIC, "t", (("flush.ms", "1"), ("segment.ms", "7")))
    world.carry_out(decision)
    repeated = world.decide(altered(TOPIC, "t", {"segment.ms": "7"}))
    assert (repeated.records, repeated.outcome) == ([], ConfigsAltered(TOPIC, "t", ()))


def test_a_secret_is_masked_under_a_key_of_its_own_for_as_long_as_it_stays_the_same() -> None:
    world, name = world_with_topic(), "ssl.keystore.password"

    def written(value: str) -> bytes:
        """Set the secret, check its mask in the answer, and return the key."""
        decision = world.decide(altered(BROKER, "", {name: value, "log.retention.ms": "1"}))
        plain, secret = decision.records
        assert isinstance(plain, ConfigRecord) and isinstance(secret, ConfigRecord)
        assert plain.mask_key is None
        key = secret.mask_key or b""
        assert len(key) == MASK_KEY_BYTES
        masked = "hmac-sha256:" + hmac.new(key, value.encode(), "sha256").hexdigest()
        assert isinstance(decision.outcome, ConfigsAltered)
        assert dict(decision.outcome.settings)[name] == masked
        world.carry_out(decision)
        assert configs_items(world.image.configs, BROKER, "")[-1]["value"] == masked
        return key

    first = written("open sesame")
    assert written("open sesame") == first
    second = written("open barley")
    assert second != first
    assert written("open sesame") not in (first, second)


@pytest.mark.parametrize(
    "name",
    [
        "ssl.keystore.password",
        "ssl.keystore.PASSWORD",
        "ssl.truststore.password",
        "ssl.key.password",
        "ssl.keystore.key",
        "ssl.keystore.certificate.chain",
        "ssl.truststore.certificates",
        "listener.name.x.scram-sha-256.sasl.jaas.config",
        "sasl.oauthbearer.client.credentials.client.secret",
        "sasl.oauthbearer.assertion.private.key.passphrase",
        "listener.name.x.sasl.oauthbearer.assertion.private.key.passphrase",
        "password.encoder.secret",
        "password.encoder.old.secret",
        "delegation.token.secret.key",
        "delegation.token.master.key",
        "rsm.config.storage.aws.secret.access.key",
        "rsm.config.storage.azure.account.key",
        "rsm.config.storage.azure.sas.token",
        "rsm.config.storage.gcs.credentials.json",
        "rsm.config.storage.azure.connection.string",
        "schema.registry.basic.auth.user.info",
        "my.plugin.api.key",
        "plugin.Passphrase",
        "some.plugin.setting",
        "retention.ms",
        "SSL.PROTOCOL",
    ],
)
def test_each_name_of_a_secret_is_written_with_a_key_and_shown_to_nobody(name: str) -> None:
    """Goal: no answer, digest or dump has the secret. Method: set it, and look in all that is shown of it."""
    world = world_with_topic()
    decision = world.decide(altered(BROKER, "", {name: "hunter2"}))
    (record,) = decision.records
    assert isinstance(record, ConfigRecord) and len(record.mask_key or b"") == MASK_KEY_BYTES
    world.carry_out(decision)
    configs = world.image.configs
    seen = (decision.outcome, to_json(record), config_line(record), configs_items(configs, BROKER, ""))
    assert not [each for each in seen if "hunter2" in repr(each) or hex_of_text("hunter2") in repr(each)]
    (told,) = [one for one in describe_cluster_configs(configs) if one.name == name]
    assert told.is_sensitive and told.value is None


def test_what_an_older_release_wrote_in_plain_text_is_masked_in_answers_until_it_has_a_key() -> None:
    """Goal: the digest of an older log stays what it was; its secrets are not answered with. Method: set it once more."""
    world, name = world_with_topic(), "listener.name.x.sasl.oauthbearer.assertion.private.key.passphrase"
    older = ConfigRecord(BROKER, "", name, "hunter2")
    world.write([older])
    assert config_line(older).endswith(f"|{hex_of_text('hunter2')}")
    assert configs_items(world.image.configs, BROKER, "")[-1]["value"] == mask("hunter2", None)
    decision = world.decide(altered(BROKER, "", {name: "hunter2"}))
    (record,) = decision.records
    assert isinstance(record, ConfigRecord)
    assert shown(record).value == mask("hunter2", record.mask_key) != mask("hunter2", None)


@pytest.mark.parametrize(
    ("resource_type", "name", "expected"),
    [
        (TOPIC, "retention.ms", False),
        (TOPIC, "internal.segment.bytes", False),
        (TOPIC, "message.format.version", True),
        (BROKER, "retention.ms", True),
        (BROKER, "log.retention.ms", False),
        (BROKER, "node.id", False),
        (BROKER, "leader.replication.throttled.rate", False),
        (BROKER, "ssl.key.password", True),
        (BROKER, "delegation.token.secret.key", True),
        (BROKER, "listener.name.x.num.io.threads", False),
        (BROKER, "listener.name.x.ssl.keystore.key", True),
        (BROKER, "listener.name.x.plain.sasl.jaas.config", True),
        (BROKER, "listener.name.x.plain.connections.max.reauth.ms", False),
        (BROKER, "listener.name.x.plain.num.io.threads", True),
        (GROUP, "share.isolation.level", False),
        (GROUP, "interval.ms", True),
        (CLIENT_METRICS, "interval.ms", False),
        (CLIENT_METRICS, "share.isolation.level", True),
        (8, "retention.ms", True),
    ],
)
def test_what_kafka_does_not_know_or_knows_as_a_password_is_a_secret(
    resource_type: int, name: str, expected: bool
) -> None:
    """B83: tests/differential/test_settings.py has Kafka's own answers."""
    assert is_sensitive(resource_type, name) is expected


@pytest.mark.parametrize(
    ("command", "error"),
    [
        (altered(TOPIC, "t", {"flush.ms": "1"}, "flush.ms"), "INVALID_REQUEST"),
        (altered(TOPIC, "t", {}, "flush.ms", "flush.ms"), "INVALID_REQUEST"),
        (altered(TOPIC, "t", {"": "1"}), "INVALID_REQUEST"),
        (altered(TOPIC, "no", {"flush.ms": "x"}), "INVALID_CONFIG"),
        (altered(TOPIC, "no", {"flush.ms": "1"}), "UNKNOWN_TOPIC_OR_PARTITION"),
        (altered(TOPIC, "no", {}), "UNKNOWN_TOPIC_OR_PARTITION"),
        (altered(BROKER, "01", {"a": "1"}), "INVALID_REQUEST"),
        (altered(BROKER, "2", {"a": "1"}), "BROKER_ID_NOT_REGISTERED"),
        (altered(BROKER, "9000", {"a": "1"}), None),
        (altered(3, "t", {"a": "1"}), "INVALID_REQUEST"),
        (altered(BROKER, "1", {f"n{n}": "" for n in range(10_001)}), "POLICY_VIOLATION"),
    ],
)
def test_refusals(command: AlterConfigs, error: str | None) -> None:
    decision = world_with_topic().decide(command)
    assert (decision.refusal and decision.refusal.error) == error


def test_settings_of_brokers_are_checked_as_kafkas_brokers_check_them() -> None:
    """Goal: each value of each setting is accepted or refused as by DynamicBrokerConfig.validateConfigs of Kafka 4.3.1."""
    lines = gzip.decompress((GOLDEN / "broker_settings.jsonl.gz").read_bytes()).splitlines()
    assert len(lines) > 200
    for line in lines:
        row = json.loads(line)
        resource_name = "1" if row["of_one_broker"] else ""
        for value in row["accepted"]:
            check_broker_configs(resource_name, {row["name"]: value})
        for value in row["refused"]:
            with pytest.raises(InvalidRequest):
                check_broker_configs(resource_name, {row["name"]: value})


@pytest.mark.parametrize(
    ("value", "expected"), [("2", 2), (" 3 ", 3), ("+1", 1), ("abc", None), ("", None), (None, None)]
)
def test_a_min_isr_that_is_no_number_does_not_count(value: str | None, expected: int | None) -> None:
    assert min_isr_number(value) == expected
