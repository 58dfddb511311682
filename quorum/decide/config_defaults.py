"""Pure: types and defaults of Kafka 4.3.1's settings of topics, and of those of brokers that a running broker takes over.

Source: LogConfig, AbstractKafkaConfig, DynamicBrokerConfig and ServerTopicConfigSynonyms of Kafka 4.3.1, read out of its own
definitions. Tests: tests/unit/quorum/decide/test_described_configs.py.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple


class Known(NamedTuple):
    """A setting that Kafka knows: the type in its own word, and the default; None: it has none."""

    type: str
    default: str | None


def _table(text: str) -> dict[str, Known]:
    """Read lines of a name, a type and a default; `-` is the empty text."""
    known = {}
    for line in text.strip().splitlines():
        name, kind, *default = line.split()
        known[name] = Known(kind, None if not default else "" if default[0] == "-" else default[0])
    return known


TOPIC_SETTINGS: Final[Mapping[str, Known]] = _table("""
    cleanup.policy LIST delete
    compression.gzip.level INT -1
    compression.lz4.level INT 9
    compression.type STRING producer
    compression.zstd.level INT 3
    delete.retention.ms LONG 86400000
    file.delete.delay.ms LONG 60000
    flush.messages LONG 9223372036854775807
    flush.ms LONG 9223372036854775807
    follower.replication.throttled.replicas LIST -
    index.interval.bytes INT 4096
    leader.replication.throttled.replicas LIST -
    local.retention.bytes LONG -2
    local.retention.ms LONG -2
    max.compaction.lag.ms LONG 9223372036854775807
    max.message.bytes INT 1048588
    message.timestamp.after.max.ms LONG 3600000
    message.timestamp.before.max.ms LONG 9223372036854775807
    message.timestamp.type STRING CreateTime
    min.cleanable.dirty.ratio DOUBLE 0.5
    min.compaction.lag.ms LONG 0
    min.insync.replicas INT 1
    preallocate BOOLEAN false
    remote.log.copy.disable BOOLEAN false
    remote.log.delete.on.disable BOOLEAN false
    remote.storage.enable BOOLEAN false
    retention.bytes LONG -1
    retention.ms LONG 604800000
    segment.bytes INT 1073741824
    segment.index.bytes INT 10485760
    segment.jitter.ms LONG 0
    segment.ms LONG 604800000
    unclean.leader.election.enable BOOLEAN false
""")
BROKER_SETTINGS: Final[Mapping[str, Known]] = _table("""
    background.threads INT 10
    compression.gzip.level INT -1
    compression.lz4.level INT 9
    compression.type STRING producer
    compression.zstd.level INT 3
    config.providers LIST -
    cordoned.log.dirs LIST -
    follower.fetch.last.tiered.offset.enable BOOLEAN false
    follower.replication.throttled.rate LONG 9223372036854775807
    group.consumer.assignment.interval.ms INT 1000
    group.coordinator.cached.buffer.max.bytes INT 1048588
    group.share.assignment.interval.ms INT 1000
    group.streams.assignment.interval.ms INT 1000
    leader.replication.throttled.rate LONG 9223372036854775807
    listener.security.protocol.map STRING SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT
    listeners LIST PLAINTEXT://:9092
    log.cleaner.backoff.ms LONG 15000
    log.cleaner.dedupe.buffer.size LONG 134217728
    log.cleaner.delete.retention.ms LONG 86400000
    log.cleaner.io.buffer.load.factor DOUBLE 0.9
    log.cleaner.io.buffer.size INT 524288
    log.cleaner.io.max.bytes.per.second DOUBLE 1.7976931348623157E308
    log.cleaner.max.compaction.lag.ms LONG 9223372036854775807
    log.cleaner.min.cleanable.ratio DOUBLE 0.5
    log.cleaner.min.compaction.lag.ms LONG 0
    log.cleaner.threads INT 1
    log.cleanup.policy LIST delete
    log.flush.interval.messages LONG 9223372036854775807
    log.flush.interval.ms LONG
    log.index.interval.bytes INT 4096
    log.index.size.max.bytes INT 10485760
    log.local.retention.bytes LONG -2
    log.local.retention.ms LONG -2
    log.message.timestamp.after.max.ms LONG 3600000
    log.message.timestamp.before.max.ms LONG 9223372036854775807
    log.message.timestamp.type STRING CreateTime
    log.preallocate BOOLEAN false
    log.retention.bytes LONG -1
    log.retention.ms LONG
    log.roll.jitter.ms LONG
    log.roll.ms LONG
    log.segment.bytes INT 1073741824
    log.segment.delete.delay.ms LONG 60000
    max.connection.creation.rate INT 2147483647
    max.connections INT 2147483647
    max.connections.per.ip INT 2147483647
    max.connections.per.ip.overrides STRING -
    message.max.bytes INT 1048588
    metric.reporters LIST org.apache.kafka.common.metrics.JmxReporter
    min.insync.replicas INT 1
    num.io.threads INT 8
    num.network.threads INT 3
    num.recovery.threads.per.data.dir INT 2
    num.replica.fetchers INT 1
    principal.builder.class CLASS org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder
    producer.id.expiration.ms INT 86400000
    remote.fetch.max.wait.ms INT 500
    remote.list.offsets.request.timeout.ms LONG 30000
    remote.log.index.file.cache.total.size.bytes LONG 1073741824
    remote.log.manager.copier.thread.pool.size INT 10
    remote.log.manager.copy.max.bytes.per.second LONG 9223372036854775807
    remote.log.manager.expiration.thread.pool.size INT 10
    remote.log.manager.fetch.max.bytes.per.second LONG 9223372036854775807
    remote.log.manager.follower.thread.pool.size INT 2
    remote.log.reader.threads INT 10
    replica.alter.log.dirs.io.max.bytes.per.second LONG 9223372036854775807
    sasl.enabled.mechanisms LIST GSSAPI
    sasl.jaas.config PASSWORD
    sasl.kerberos.kinit.cmd STRING /usr/bin/kinit
    sasl.kerberos.min.time.before.relogin LONG 60000
    sasl.kerberos.principal.to.local.rules LIST DEFAULT
    sasl.kerberos.service.name STRING
    sasl.kerberos.ticket.renew.jitter DOUBLE 0.05
    sasl.kerberos.ticket.renew.window.factor DOUBLE 0.8
    sasl.login.refresh.buffer.seconds SHORT 300
    sasl.login.refresh.min.period.seconds SHORT 60
    sasl.login.refresh.window.factor DOUBLE 0.8
    sasl.login.refresh.window.jitter DOUBLE 0.05
    sasl.mechanism.inter.broker.protocol STRING GSSAPI
    share.coordinator.cached.buffer.max.bytes INT 1048588
    ssl.cipher.suites LIST -
    ssl.client.auth STRING none
    ssl.enabled.protocols LIST TLSv1.2,TLSv1.3
    ssl.endpoint.identification.algorithm STRING https
    ssl.engine.factory.class CLASS
    ssl.key.password PASSWORD
    ssl.keymanager.algorithm STRING SunX509
    ssl.keystore.certificate.chain PASSWORD
    ssl.keystore.key PASSWORD
    ssl.keystore.location STRING
    ssl.keystore.password PASSWORD
    ssl.keystore.type STRING JKS
    ssl.protocol STRING TLSv1.3
    ssl.provider STRING
    ssl.secure.random.implementation STRING
    ssl.trustmanager.algorithm STRING PKIX
    ssl.truststore.certificates PASSWORD
    ssl.truststore.location STRING
    ssl.truststore.password PASSWORD
    ssl.truststore.type STRING JKS
    transaction.partition.verification.enable BOOLEAN true
    unclean.leader.election.enable BOOLEAN false
""")
SYNONYMS: Final[Mapping[str, str]] = {
    "cleanup.policy": "log.cleanup.policy",
    "compression.gzip.level": "compression.gzip.level",
    "compression.lz4.level": "compression.lz4.level",
    "compression.type": "compression.type",
    "compression.zstd.level": "compression.zstd.level",
    "delete.retention.ms": "log.cleaner.delete.retention.ms",
    "file.delete.delay.ms": "log.segment.delete.delay.ms",
    "flush.messages": "log.flush.interval.messages",
    "flush.ms": "log.flush.interval.ms",
    "index.interval.bytes": "log.index.interval.bytes",
    "local.retention.bytes": "log.local.retention.bytes",
    "local.retention.ms": "log.local.retention.ms",
    "max.compaction.lag.ms": "log.cleaner.max.compaction.lag.ms",
    "max.message.bytes": "message.max.bytes",
    "message.timestamp.after.max.ms": "log.message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms": "log.message.timestamp.before.max.ms",
    "message.timestamp.type": "log.message.timestamp.type",
    "min.cleanable.dirty.ratio": "log.cleaner.min.cleanable.ratio",
    "min.compaction.lag.ms": "log.cleaner.min.compaction.lag.ms",
    "min.insync.replicas": "min.insync.replicas",
    "preallocate": "log.preallocate",
    "retention.bytes": "log.retention.bytes",
    "retention.ms": "log.retention.ms",
    "segment.bytes": "log.segment.bytes",
    "segment.index.bytes": "log.index.size.max.bytes",
    "segment.jitter.ms": "log.roll.jitter.ms",
    "segment.ms": "log.roll.ms",
    "unclean.leader.election.enable": "unclean.leader.election.enable",
}
"""By the name of a topic's setting: the setting of brokers that counts for topics without their own."""
