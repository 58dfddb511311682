"""Pure: the settings that Kafka 4.3.1 knows, and the values it accepts for them.

Source: LogConfig, DynamicBrokerConfig and AbstractKafkaConfig of Kafka 4.3.1, read out of its own definitions.
Tests: tests/unit/quorum/decide/test_configs.py.
"""

import re
from collections.abc import Callable, Mapping
from typing import Final

from metadata_log.errors import InvalidConfig, InvalidRequest
from metadata_log.kafka_settings import (
    INTERNAL_SEGMENT_BYTES,
    OF_LISTENER,
    PER_BROKER,
    PER_LISTENER,
    STATIC,
    TOPIC_SETTINGS,
)
from metadata_log.records.configs import BROKER, CLUSTER_DEFAULT, TOPIC, is_sensitive
from metadata_log.wire.shapes import INT32_MAX, INT64_MAX

Check = Callable[[str], str | None]
"""Returns what is wrong with a value, if anything is."""

INTEGER: Final = re.compile(r"[+-]?[0-9]{1,19}")
_DECIMAL: Final = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?")
_REPLICA: Final = re.compile(r"[0-9]+:[0-9]+")


def integer(low: int, high: int) -> Check:
    def check(value: str) -> str | None:
        if not INTEGER.fullmatch(value):
            return "not an integer"
        return None if low <= int(value) <= high else f"not from {low} to {high}"

    return check


def _int16() -> Check:
    return integer(-0x8000, 0x7FFF)


def _int32(low: int = -INT32_MAX - 1, high: int = INT32_MAX) -> Check:
    return integer(low, high)


def _int64(low: int = -INT64_MAX - 1) -> Check:
    return integer(low, INT64_MAX)


def _fraction(value: str) -> str | None:
    return None if _DECIMAL.fullmatch(value) and 0 <= float(value) <= 1 else "not a number from 0 to 1"


def _number(value: str) -> str | None:
    return None if _DECIMAL.fullmatch(value) else "not a number"


def _anything(value: str) -> str | None:  # noqa: ARG001 (a check's signature)
    return None


def boolean(value: str) -> str | None:
    return None if value.lower() in ("true", "false") else "not true or false"


def one_of(*allowed: str) -> Check:
    return lambda value: None if value in allowed else f"not one of {', '.join(allowed)}"


def _list_of(*allowed: str) -> Check:
    """Return a check that takes an item twice, as Kafka does."""
    return lambda value: (
        None if set(items_of(value)) <= set(allowed) else f"not a list of {', '.join(allowed)}"
    )


def _throttled_replicas(value: str) -> str | None:
    """Check as Kafka's ThrottledReplicaListValidator, which takes empty items."""
    items = [item for item in items_of(value) if item]
    if items == ["*"] or all(_REPLICA.fullmatch(item) for item in items):
        return None
    return "neither * nor a list of PARTITION:BROKER"


def items_of(value: str) -> list[str]:
    return [item.strip() for item in value.split(",")] if value else []


TOPIC_CONFIGS: Final[Mapping[str, Check]] = {
    "cleanup.policy": _list_of("compact", "delete"),
    "compression.gzip.level": lambda value: None if value == "-1" else _int32(1, 9)(value),
    "compression.lz4.level": _int32(1, 17),
    "compression.type": one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
    "compression.zstd.level": _int32(-131072, 22),
    "delete.retention.ms": _int64(0),
    "file.delete.delay.ms": _int64(0),
    "flush.messages": _int64(1),
    "flush.ms": _int64(0),
    "follower.replication.throttled.replicas": _throttled_replicas,
    "index.interval.bytes": _int32(0),
    INTERNAL_SEGMENT_BYTES: _int32(),
    "leader.replication.throttled.replicas": _throttled_replicas,
    "local.retention.bytes": _int64(-2),
    "local.retention.ms": _int64(-2),
    "max.compaction.lag.ms": _int64(1),
    "max.message.bytes": _int32(0),
    "message.timestamp.after.max.ms": _int64(0),
    "message.timestamp.before.max.ms": _int64(0),
    "message.timestamp.type": one_of("CreateTime", "LogAppendTime"),
    "min.cleanable.dirty.ratio": _fraction,
    "min.compaction.lag.ms": _int64(0),
    "min.insync.replicas": _int32(1),
    "preallocate": boolean,
    "remote.log.copy.disable": boolean,
    "remote.log.delete.on.disable": boolean,
    "remote.storage.enable": boolean,
    "retention.bytes": _int64(),
    "retention.ms": _int64(-1),
    "segment.bytes": _int32(1024 * 1024),
    "segment.index.bytes": _int32(4),
    "segment.jitter.ms": _int64(0),
    "segment.ms": _int64(1),
    "unclean.leader.election.enable": boolean,
}


REMOTE_STORAGE_ENABLE: Final = "remote.storage.enable"
_END_OF_REMOTE_STORAGE: Final = (
    f"set {REMOTE_STORAGE_ENABLE}=false and remote.log.delete.on.disable=true in one request"
)
_AS_THE_WHOLE: Final = -2
"""Of what a broker keeps itself: as much as the whole log."""
LIST_CONFIGS: Final[Mapping[int, Mapping[str, str]]] = {
    TOPIC: {
        "cleanup.policy": "delete",
        "follower.replication.throttled.replicas": "",
        "leader.replication.throttled.replicas": "",
    },
    BROKER: {
        "cordoned.log.dirs": "",
        "early.start.listeners": "",
        "group.consumer.assignors": "uniform,range",
        "group.coordinator.rebalance.protocols": "classic,consumer,streams",
        "group.share.assignors": "simple",
        "listeners": "PLAINTEXT://:9092",
        "advertised.listeners": "",
        "log.cleanup.policy": "delete",
        "log.dirs": "",
        "metric.reporters": "org.apache.kafka.common.metrics.JmxReporter",
        "sasl.enabled.mechanisms": "GSSAPI",
        "sasl.kerberos.principal.to.local.rules": "DEFAULT",
        "ssl.cipher.suites": "",
        "ssl.enabled.protocols": "TLSv1.2,TLSv1.3",
    },
}
"""By type of resource: settings that are lists, each with its default."""


def check_topic_configs(
    settings: Mapping[str, str], before: Mapping[str, str] | None = None, *, has_remote_storage: bool = False
) -> None:
    """Check a topic's settings by name, by value, against each other, and against those that it had `before`.

    With `has_remote_storage` a topic may have tiers: remote.log.storage.system.enable is true in the controller's settings.

    Raises:
        InvalidConfig: names the first that is wrong.
    """
    for name, value in sorted(settings.items()):
        check = TOPIC_CONFIGS.get(name)
        if check is None:
            raise InvalidConfig(f"{name!r} is no setting of a topic")
        fault = check(value.strip())
        if fault is not None:
            raise InvalidConfig(f"{name} = {value!r} is {fault}")
    if (low := _number_of(settings, "min.compaction.lag.ms")) > (
        high := _number_of(settings, "max.compaction.lag.ms")
    ):
        raise InvalidConfig(f"min.compaction.lag.ms {low} exceeds max.compaction.lag.ms {high}")
    if _is_true(settings, REMOTE_STORAGE_ENABLE):
        _check_remote_storage(settings, has_remote_storage=has_remote_storage)
    else:
        _check_end_of_remote_storage(settings, before or {})


def _check_remote_storage(settings: Mapping[str, str], *, has_remote_storage: bool) -> None:
    """Check the settings of a topic with tiers. Source: LogConfig.validateTopicLogConfigValues of Kafka 4.3.1."""
    if not has_remote_storage:
        raise InvalidConfig(
            f"{REMOTE_STORAGE_ENABLE} = 'true': the controllers' settings say that brokers have no remote storage "
            f"(remote_log_storage_system_enable); leave it out, or {_END_OF_REMOTE_STORAGE}"
        )
    if {*items_of(settings.get("cleanup.policy", "delete").strip())} - {"delete"}:
        raise InvalidConfig(f"{REMOTE_STORAGE_ENABLE} = 'true' needs cleanup.policy=delete, or an empty one")
    for unit, unlimited in (("bytes", range(-INT64_MAX - 1, 0)), ("ms", (-1,))):
        whole = _number_of(settings, f"retention.{unit}")
        local = _number_of(settings, f"local.retention.{unit}")
        if local == _AS_THE_WHOLE:
            continue
        if whole not in unlimited and (local == -1 or local > whole):
            raise InvalidConfig(f"local.retention.{unit} {local} exceeds retention.{unit} {whole}")
        if _is_true(settings, "remote.log.copy.disable") and local != whole:
            raise InvalidConfig(
                f"with remote.log.copy.disable, local.retention.{unit} {local} must be retention.{unit} {whole}: nothing "
                "more is copied"
            )


def _check_end_of_remote_storage(settings: Mapping[str, str], before: Mapping[str, str]) -> None:
    """Refuse that a topic loses its tiers while what lies there stays."""
    had_tiers = before.get(REMOTE_STORAGE_ENABLE, "false").lower() == "true"  # as in Kafka with its spaces
    if had_tiers and not _is_true(settings, "remote.log.delete.on.disable"):
        raise InvalidConfig(
            f"{REMOTE_STORAGE_ENABLE} cannot be turned off while its remote data stays: {_END_OF_REMOTE_STORAGE}"
        )


def _is_true(settings: Mapping[str, str], name: str) -> bool:
    return settings.get(name, "false").strip().lower() == "true"


def _number_of(settings: Mapping[str, str], name: str) -> int:
    return int(settings.get(name) or TOPIC_SETTINGS[name].default or 0)


BROKER_CONFIGS: Final[Mapping[str, Check]] = {
    "background.threads": _int32(1),
    "compression.gzip.level": lambda value: None if value == "-1" else _int32(1, 9)(value),
    "compression.lz4.level": _int32(1, 17),
    "compression.type": one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
    "compression.zstd.level": _int32(-131072, 22),
    "config.providers": _anything,
    "cordoned.log.dirs": _anything,
    "follower.fetch.last.tiered.offset.enable": boolean,
    "follower.replication.throttled.rate": _int64(0),
    "group.consumer.assignment.interval.ms": _int32(0),
    "group.coordinator.cached.buffer.max.bytes": _int32(524288),
    "group.share.assignment.interval.ms": _int32(0),
    "group.streams.assignment.interval.ms": _int32(0),
    "leader.replication.throttled.rate": _int64(0),
    "listener.security.protocol.map": _anything,
    "listeners": lambda value: None if value else "empty",
    "log.cleaner.backoff.ms": _int64(0),
    "log.cleaner.dedupe.buffer.size": _int64(),
    "log.cleaner.delete.retention.ms": _int64(0),
    "log.cleaner.io.buffer.load.factor": _number,
    "log.cleaner.io.buffer.size": _int32(0),
    "log.cleaner.io.max.bytes.per.second": _number,
    "log.cleaner.max.compaction.lag.ms": _int64(1),
    "log.cleaner.min.cleanable.ratio": _fraction,
    "log.cleaner.min.compaction.lag.ms": _int64(0),
    "log.cleaner.threads": _int32(0),
    "log.cleanup.policy": _list_of("compact", "delete"),
    "log.flush.interval.messages": _int64(1),
    "log.flush.interval.ms": _int64(),
    "log.index.interval.bytes": _int32(0),
    "log.index.size.max.bytes": _int32(4),
    "log.local.retention.bytes": _int64(-2),
    "log.local.retention.ms": _int64(-2),
    "log.message.timestamp.after.max.ms": _int64(0),
    "log.message.timestamp.before.max.ms": _int64(0),
    "log.message.timestamp.type": one_of("CreateTime", "LogAppendTime"),
    "log.preallocate": boolean,
    "log.retention.bytes": _int64(),
    "log.retention.ms": _int64(),
    "log.roll.jitter.ms": _int64(),
    "log.roll.ms": _int64(),
    "log.segment.bytes": _int32(1_048_576),
    "log.segment.delete.delay.ms": _int64(0),
    "max.connection.creation.rate": _int32(0),
    "max.connections": _int32(0),
    "max.connections.per.ip": _int32(0),
    "max.connections.per.ip.overrides": _anything,
    "message.max.bytes": _int32(0),
    "metric.reporters": _anything,
    "min.insync.replicas": _int32(1),
    "num.io.threads": _int32(1),
    "num.network.threads": _int32(1),
    "num.recovery.threads.per.data.dir": _int32(1),
    "num.replica.fetchers": _int32(1),
    "principal.builder.class": _anything,
    "producer.id.expiration.ms": _int32(1),
    "remote.fetch.max.wait.ms": _int32(1),
    "remote.list.offsets.request.timeout.ms": _int64(1),
    "remote.log.index.file.cache.total.size.bytes": _int64(1),
    "remote.log.manager.copier.thread.pool.size": _int32(1),
    "remote.log.manager.copy.max.bytes.per.second": _int64(1),
    "remote.log.manager.expiration.thread.pool.size": _int32(1),
    "remote.log.manager.fetch.max.bytes.per.second": _int64(1),
    "remote.log.manager.follower.thread.pool.size": _int32(1),
    "remote.log.reader.threads": _int32(1),
    "replica.alter.log.dirs.io.max.bytes.per.second": _int64(0),
    "sasl.enabled.mechanisms": _anything,
    "sasl.jaas.config": _anything,
    "sasl.kerberos.kinit.cmd": _anything,
    "sasl.kerberos.min.time.before.relogin": _int64(),
    "sasl.kerberos.principal.to.local.rules": _anything,
    "sasl.kerberos.service.name": _anything,
    "sasl.kerberos.ticket.renew.jitter": _number,
    "sasl.kerberos.ticket.renew.window.factor": _number,
    "sasl.login.refresh.buffer.seconds": _int16(),
    "sasl.login.refresh.min.period.seconds": _int16(),
    "sasl.login.refresh.window.factor": _number,
    "sasl.login.refresh.window.jitter": _number,
    "sasl.mechanism.inter.broker.protocol": _anything,
    "share.coordinator.cached.buffer.max.bytes": _int32(524288),
    "ssl.cipher.suites": _anything,
    "ssl.client.auth": one_of("required", "requested", "none"),
    "ssl.enabled.protocols": _anything,
    "ssl.endpoint.identification.algorithm": _anything,
    "ssl.engine.factory.class": _anything,
    "ssl.key.password": _anything,
    "ssl.keymanager.algorithm": _anything,
    "ssl.keystore.certificate.chain": _anything,
    "ssl.keystore.key": _anything,
    "ssl.keystore.location": _anything,
    "ssl.keystore.password": _anything,
    "ssl.keystore.type": _anything,
    "ssl.protocol": _anything,
    "ssl.provider": _anything,
    "ssl.secure.random.implementation": _anything,
    "ssl.trustmanager.algorithm": _anything,
    "ssl.truststore.certificates": _anything,
    "ssl.truststore.location": _anything,
    "ssl.truststore.password": _anything,
    "ssl.truststore.type": _anything,
    "transaction.partition.verification.enable": boolean,
    "unclean.leader.election.enable": boolean,
}
"""The settings that a running broker takes over."""
_FOR_ALL_LISTENERS: Final = frozenset(
    {"max.connections", "max.connection.creation.rate", "num.network.threads"}
)


def check_broker_configs(resource_name: str, settings: Mapping[str, str]) -> None:
    """Check values to set for a broker, or for all if `resource_name` is CLUSTER_DEFAULT, as Kafka's brokers do.

    Kafka's controller trusts them to: it stores whatever it is given. A setting that Kafka does not know has any value.

    Raises:
        InvalidRequest: names the first setting that is refused.
    """
    for name, value in sorted(settings.items()):
        match = OF_LISTENER.fullmatch(name)
        base = name if match is None else match[1]
        if name in STATIC:
            raise InvalidRequest(
                f"{name} cannot be changed while brokers run: it stands in a broker's own file"
            )
        if name in PER_LISTENER:
            raise InvalidRequest(f"{name} is set for one listener: listener.name.NAME.{name}")
        check = BROKER_CONFIGS.get(base)
        fault = None if check is None else check(value.strip())
        if fault is not None:
            shown = "the secret given for it" if is_sensitive(BROKER, name) else repr(value)
            raise InvalidRequest(f"{name} = {shown} is {fault}")
        is_own = name in PER_BROKER or (match is not None and base not in _FOR_ALL_LISTENERS)
        if resource_name == CLUSTER_DEFAULT and is_own:
            raise InvalidRequest(f"{name} is set for each broker, not for the whole cluster")
