"""Pure: the settings that Kafka 4.3.1 knows of topics, brokers, groups and subscriptions to clients' metrics.

Types and defaults are there where a resource's settings are described; of a broker, those that it takes over while it runs.
Source: LogConfig, AbstractKafkaConfig, DynamicBrokerConfig, ServerTopicConfigSynonyms, GroupConfig and ClientMetricsConfigs
of Kafka 4.3.1, read out of its own definitions. Tests: tests/unit/quorum/decide/test_described_configs.py.
"""

import re
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
INTERNAL_SEGMENT_BYTES: Final = "internal.segment.bytes"
"""A setting of topics for Kafka's own tests: accepted, and not described."""
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
PER_BROKER: Final = frozenset(
    """
    cordoned.log.dirs listener.security.protocol.map listeners principal.builder.class sasl.enabled.mechanisms
    sasl.jaas.config sasl.kerberos.kinit.cmd sasl.kerberos.min.time.before.relogin
    sasl.kerberos.principal.to.local.rules sasl.kerberos.service.name sasl.kerberos.ticket.renew.jitter
    sasl.kerberos.ticket.renew.window.factor sasl.login.refresh.buffer.seconds sasl.login.refresh.min.period.seconds
    sasl.login.refresh.window.factor sasl.login.refresh.window.jitter sasl.mechanism.inter.broker.protocol
    ssl.cipher.suites ssl.client.auth ssl.enabled.protocols ssl.endpoint.identification.algorithm
    ssl.engine.factory.class ssl.key.password ssl.keymanager.algorithm ssl.keystore.certificate.chain ssl.keystore.key
    ssl.keystore.location ssl.keystore.password ssl.keystore.type ssl.protocol ssl.provider
    ssl.secure.random.implementation ssl.trustmanager.algorithm ssl.truststore.certificates ssl.truststore.location
    ssl.truststore.password ssl.truststore.type
    """.split()  # noqa: SIM905 (one name a line would be 250 lines)
)
"""They differ from broker to broker, so the cluster has none of them."""
PER_LISTENER: Final = frozenset(
    """
    ssl.key.password ssl.keystore.certificate.chain ssl.keystore.key ssl.keystore.location ssl.keystore.password
    ssl.keystore.type ssl.truststore.certificates ssl.truststore.location ssl.truststore.password ssl.truststore.type
    """.split()  # noqa: SIM905 (one name a line would be 250 lines)
)
"""They are given for a listener: listener.name.NAME.SETTING."""
STATIC: Final = frozenset(
    """
    add.partitions.to.txn.retry.backoff.max.ms add.partitions.to.txn.retry.backoff.ms advertised.listeners
    alter.config.policy.class.name alter.log.dirs.replication.quota.window.num
    alter.log.dirs.replication.quota.window.size.seconds authorizer.class.name auto.create.topics.enable
    auto.leader.rebalance.enable broker.heartbeat.interval.ms broker.id broker.rack broker.session.timeout.ms
    client.quota.callback.class connection.failed.authentication.delay.ms connections.max.idle.ms
    connections.max.reauth.ms controlled.shutdown.enable controller.listener.names
    controller.performance.always.log.threshold.ms controller.performance.sample.period.ms
    controller.quorum.append.linger.ms controller.quorum.auto.join.enable controller.quorum.bootstrap.servers
    controller.quorum.election.backoff.max.ms controller.quorum.election.timeout.ms controller.quorum.fetch.max.bytes
    controller.quorum.fetch.snapshot.max.bytes controller.quorum.fetch.timeout.ms controller.quorum.request.timeout.ms
    controller.quorum.retry.backoff.ms controller.quorum.voters controller.quota.window.num
    controller.quota.window.size.seconds controller.socket.timeout.ms create.topic.policy.class.name
    default.replication.factor delegation.token.expiry.check.interval.ms delegation.token.expiry.time.ms
    delegation.token.max.lifetime.ms delegation.token.secret.key delete.records.purgatory.purge.interval.requests
    delete.topic.enable early.start.listeners fetch.max.bytes fetch.purgatory.purge.interval.requests
    group.consumer.assignors group.consumer.heartbeat.interval.ms group.consumer.max.assignment.interval.ms
    group.consumer.max.heartbeat.interval.ms group.consumer.max.session.timeout.ms group.consumer.max.size
    group.consumer.migration.policy group.consumer.min.assignment.interval.ms group.consumer.min.heartbeat.interval.ms
    group.consumer.min.session.timeout.ms group.consumer.regex.refresh.interval.ms group.consumer.session.timeout.ms
    group.coordinator.append.linger.ms group.coordinator.background.threads group.coordinator.rebalance.protocols
    group.coordinator.threads group.initial.rebalance.delay.ms group.max.session.timeout.ms group.max.size
    group.min.session.timeout.ms group.share.assignors group.share.delivery.count.limit
    group.share.heartbeat.interval.ms group.share.initialize.retry.interval.ms group.share.max.assignment.interval.ms
    group.share.max.delivery.count.limit group.share.max.heartbeat.interval.ms
    group.share.max.partition.max.record.locks group.share.max.record.lock.duration.ms
    group.share.max.session.timeout.ms group.share.max.share.sessions group.share.max.size
    group.share.min.assignment.interval.ms group.share.min.delivery.count.limit group.share.min.heartbeat.interval.ms
    group.share.min.partition.max.record.locks group.share.min.record.lock.duration.ms
    group.share.min.session.timeout.ms group.share.partition.max.record.locks group.share.persister.class.name
    group.share.record.lock.duration.ms group.share.session.timeout.ms group.streams.heartbeat.interval.ms
    group.streams.initial.rebalance.delay.ms group.streams.max.assignment.interval.ms
    group.streams.max.heartbeat.interval.ms group.streams.max.session.timeout.ms group.streams.max.size
    group.streams.max.standby.replicas group.streams.min.assignment.interval.ms
    group.streams.min.heartbeat.interval.ms group.streams.min.session.timeout.ms group.streams.num.standby.replicas
    group.streams.session.timeout.ms initial.broker.registration.timeout.ms inter.broker.listener.name
    internal.metadata.delete.delay.millis internal.metadata.log.segment.bytes
    internal.metadata.max.batch.size.in.bytes kafka.metrics.polling.interval.secs kafka.metrics.reporters
    leader.imbalance.check.interval.seconds log.cleaner.enable log.dir log.dir.failure.timeout.ms log.dirs
    log.flush.offset.checkpoint.interval.ms log.flush.scheduler.interval.ms
    log.flush.start.offset.checkpoint.interval.ms log.initial.task.delay.ms log.retention.check.interval.ms
    log.retention.hours log.retention.minutes log.roll.hours log.roll.jitter.hours
    max.incremental.fetch.session.cache.slots max.request.partition.size.limit metadata.log.dir
    metadata.log.max.record.bytes.between.snapshots metadata.log.max.snapshot.interval.ms metadata.log.segment.bytes
    metadata.log.segment.ms metadata.max.idle.interval.ms metadata.max.retention.bytes metadata.max.retention.ms
    metrics.num.samples metrics.recording.level metrics.sample.window.ms node.id num.partitions
    num.replica.alter.log.dirs.threads offset.metadata.max.bytes offsets.commit.timeout.ms offsets.load.buffer.size
    offsets.retention.check.interval.ms offsets.retention.minutes offsets.topic.compression.codec
    offsets.topic.num.partitions offsets.topic.replication.factor offsets.topic.segment.bytes process.roles
    producer.id.expiration.check.interval.ms producer.purgatory.purge.interval.requests queued.max.request.bytes
    queued.max.requests quota.window.num quota.window.size.seconds remote.log.index.file.cache.ttl.ms
    remote.log.manager.copy.quota.window.num remote.log.manager.copy.quota.window.size.seconds
    remote.log.manager.fetch.quota.window.num remote.log.manager.fetch.quota.window.size.seconds
    remote.log.manager.task.interval.ms remote.log.manager.task.retry.backoff.max.ms
    remote.log.manager.task.retry.backoff.ms remote.log.manager.task.retry.jitter remote.log.manager.thread.pool.size
    remote.log.metadata.custom.metadata.max.bytes remote.log.metadata.manager.class.name
    remote.log.metadata.manager.class.path remote.log.metadata.manager.impl.prefix
    remote.log.metadata.manager.listener.name remote.log.reader.max.pending.tasks
    remote.log.storage.manager.class.name remote.log.storage.manager.class.path remote.log.storage.manager.impl.prefix
    remote.log.storage.system.enable replica.fetch.backoff.ms replica.fetch.max.bytes replica.fetch.min.bytes
    replica.fetch.response.max.bytes replica.fetch.wait.max.ms replica.high.watermark.checkpoint.interval.ms
    replica.lag.time.max.ms replica.selector.class replica.socket.receive.buffer.bytes replica.socket.timeout.ms
    replication.quota.window.num replication.quota.window.size.seconds request.timeout.ms
    sasl.client.callback.handler.class sasl.login.callback.handler.class sasl.login.class
    sasl.login.connect.timeout.ms sasl.login.read.timeout.ms sasl.login.retry.backoff.max.ms
    sasl.login.retry.backoff.ms sasl.mechanism.controller.protocol sasl.oauthbearer.assertion.algorithm
    sasl.oauthbearer.assertion.claim.aud sasl.oauthbearer.assertion.claim.exp.seconds
    sasl.oauthbearer.assertion.claim.iss sasl.oauthbearer.assertion.claim.jti.include
    sasl.oauthbearer.assertion.claim.nbf.seconds sasl.oauthbearer.assertion.claim.sub sasl.oauthbearer.assertion.file
    sasl.oauthbearer.assertion.private.key.file sasl.oauthbearer.assertion.private.key.passphrase
    sasl.oauthbearer.assertion.template.file sasl.oauthbearer.client.credentials.client.id
    sasl.oauthbearer.client.credentials.client.secret sasl.oauthbearer.clock.skew.seconds
    sasl.oauthbearer.expected.audience sasl.oauthbearer.expected.issuer sasl.oauthbearer.jwks.endpoint.refresh.ms
    sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms sasl.oauthbearer.jwks.endpoint.retry.backoff.ms
    sasl.oauthbearer.jwks.endpoint.url sasl.oauthbearer.jwt.retriever.class sasl.oauthbearer.jwt.validator.class
    sasl.oauthbearer.scope sasl.oauthbearer.scope.claim.name sasl.oauthbearer.sub.claim.name
    sasl.oauthbearer.token.endpoint.url sasl.server.callback.handler.class sasl.server.max.receive.size
    security.inter.broker.protocol security.providers server.max.startup.time.ms share.coordinator.append.linger.ms
    share.coordinator.cold.partition.snapshot.interval.ms share.coordinator.load.buffer.size
    share.coordinator.snapshot.update.records.per.snapshot share.coordinator.state.topic.compression.codec
    share.coordinator.state.topic.min.isr share.coordinator.state.topic.num.partitions
    share.coordinator.state.topic.prune.interval.ms share.coordinator.state.topic.replication.factor
    share.coordinator.state.topic.segment.bytes share.coordinator.threads share.coordinator.write.timeout.ms
    share.fetch.purgatory.purge.interval.requests socket.connection.setup.timeout.max.ms
    socket.connection.setup.timeout.ms socket.listen.backlog.size socket.receive.buffer.bytes socket.request.max.bytes
    socket.send.buffer.bytes ssl.allow.dn.changes ssl.allow.san.changes ssl.principal.mapping.rules
    telemetry.max.bytes transaction.abort.timed.out.transaction.cleanup.interval.ms transaction.max.timeout.ms
    transaction.remove.expired.transaction.cleanup.interval.ms transaction.state.log.load.buffer.size
    transaction.state.log.min.isr transaction.state.log.num.partitions transaction.state.log.replication.factor
    transaction.state.log.segment.bytes transaction.two.phase.commit.enable transactional.id.expiration.ms
    unclean.leader.election.interval.ms unstable.api.versions.enable unstable.feature.versions.enable
    """.split()  # noqa: SIM905 (one name a line would be 250 lines)
)
"""Settings of a broker's own file, which count from its next start."""
REMOTE_STORAGE_SYSTEM: Final = "remote.log.storage.system.enable"
"""Whether topics may have tiers."""
CLIENT_METRICS_SETTINGS: Final[Mapping[str, Known]] = {
    "interval.ms": Known("INT", "300000"),
    "match": Known("LIST", ""),
    "metrics": Known("LIST", ""),
}
GROUP_SETTINGS: Final[Mapping[str, Known]] = _table("""
    consumer.assignment.interval.ms INT 1000
    consumer.heartbeat.interval.ms INT 5000
    consumer.session.timeout.ms INT 45000
    share.assignment.interval.ms INT 1000
    share.auto.offset.reset STRING latest
    share.delivery.count.limit INT 5
    share.heartbeat.interval.ms INT 5000
    share.isolation.level STRING read_uncommitted
    share.partition.max.record.locks INT 2000
    share.record.lock.duration.ms INT 30000
    share.renew.acknowledge.enable BOOLEAN true
    share.session.timeout.ms INT 45000
    streams.assignment.interval.ms INT 1000
    streams.heartbeat.interval.ms INT 5000
    streams.initial.rebalance.delay.ms INT 3000
    streams.num.standby.replicas INT 0
    streams.session.timeout.ms INT 45000
""")
PASSWORDS: Final = (
    *(name for name, known in BROKER_SETTINGS.items() if known.type == "PASSWORD"),
    "delegation.token.secret.key",
    "sasl.oauthbearer.assertion.private.key.passphrase",
    "sasl.oauthbearer.client.credentials.client.secret",
)
"""The settings of brokers whose type is PASSWORD."""
OF_LISTENER: Final = re.compile(r"listener\.name\.[^.]*\.(.*)")
"""The name of a broker's setting for one of its listeners; the group is the setting's own name."""
_OF_MECHANISMS: Final = (
    "connections.max.reauth.ms",
    "sasl.jaas.config",
    "sasl.login.callback.handler.class",
    "sasl.login.class",
    "sasl.server.callback.handler.class",
)
"""They are given for a mechanism of a listener, too: listener.name.NAME.MECHANISM.SETTING."""


_OF_NO_LISTENER: Final = frozenset(
    {
        "follower.replication.throttled.rate",
        "leader.replication.throttled.rate",
        "replica.alter.log.dirs.io.max.bytes.per.second",
    }
)
"""The settings that a broker's file cannot have; Kafka does not know them for a listener. Source: DynamicConfig.Broker."""


def own_name(name: str) -> str:
    """Return the name of a broker's setting without the listener, and the mechanism, that it is given for."""
    match = OF_LISTENER.fullmatch(name)
    if match is None:
        return name
    return next((each for each in _OF_MECHANISMS if match[1].endswith(each)), match[1])


def is_shown_of_broker(name: str) -> bool:
    """Answer whether Kafka knows a setting of brokers, and not as a password. Source: Kafka's KafkaConfig.configType."""
    own = own_name(name)
    if own != name and own in _OF_NO_LISTENER:
        return False
    return (own in BROKER_SETTINGS or own in STATIC) and own not in PASSWORDS
