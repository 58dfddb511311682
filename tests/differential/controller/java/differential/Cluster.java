package differential;

import static java.util.concurrent.TimeUnit.MILLISECONDS;
import static java.util.concurrent.TimeUnit.SECONDS;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.Properties;
import java.util.Random;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import kafka.server.ControllerConfigurationValidator;
import kafka.server.KafkaConfig;
import kafka.server.KafkaRaftServer;
import org.apache.kafka.common.metadata.FeatureLevelRecord;
import org.apache.kafka.controller.ControllerProbe;
import org.apache.kafka.controller.QuorumController;
import org.apache.kafka.controller.QuorumFeatures;
import org.apache.kafka.controller.metrics.QuorumControllerMetrics;
import org.apache.kafka.metadata.bootstrap.BootstrapMetadata;
import org.apache.kafka.metadata.placement.StripedReplicaPlacer;
import org.apache.kafka.server.common.ApiMessageAndVersion;
import org.apache.kafka.server.common.EligibleLeaderReplicasVersion;
import org.apache.kafka.server.common.MetadataVersion;
import org.apache.kafka.server.fault.FaultHandler;

/** One real QuorumController on a virtual clock over a log in memory, put together as ControllerServer does. */
final class Cluster implements AutoCloseable {
    static final String CLUSTER_ID = "whatif-cluster";

    /** For timers that never write a record. */
    private static final long NEVER_MS = 8_640_000_000L;

    final VirtualTime time = new VirtualTime();
    final Names names = new Names();
    final Tokens tokens;
    final MemoryRaft raft;
    final QuorumController controller;
    final long sessionTimeoutNs;
    private final List<String> faults = new ArrayList<>();
    private int learned = 0;
    private int seen = 0;

    Cluster(JsonNode options) throws Exception {
        int controllerId = options.path("controller_id").asInt(3000);
        MetadataVersion version = metadataVersion(options.path("metadata_version"));
        boolean elr = options.path("eligible_leader_replicas").asInt(0) > 0;
        sessionTimeoutNs = MILLISECONDS.toNanos(options.path("session_timeout_ms").asLong(9000));
        long imbalanceSeconds = options.path("leader_imbalance_check_interval_seconds").asLong(300);
        FixedRandom.restart(options.path("uuid_seed").asLong(0));

        tokens = new Tokens(options.path("delegation_token_secret_key").asText(""));

        Properties props = new Properties();
        props.put("process.roles", "controller");
        props.put("node.id", Integer.toString(controllerId));
        props.put("controller.quorum.voters", controllerId + "@localhost:9093");
        props.put("controller.listener.names", "CONTROLLER");
        props.put("listeners", "CONTROLLER://localhost:9093");
        props.put("default.replication.factor", options.path("default_replication_factor").asText("3"));
        props.put("num.partitions", options.path("num_partitions").asText("1"));
        if (options.hasNonNull("min_insync_replicas"))
            props.put("min.insync.replicas", options.get("min_insync_replicas").asText());
        if (options.hasNonNull("unclean_leader_election_enable"))
            props.put("unclean.leader.election.enable", options.get("unclean_leader_election_enable").asText());
        if (options.hasNonNull("remote_log_storage_system_enable"))
            props.put("remote.log.storage.system.enable", options.get("remote_log_storage_system_enable").asText());
        KafkaConfig config = KafkaConfig.fromProps(props);

        List<ApiMessageAndVersion> bootstrap = new ArrayList<>();
        bootstrap.add(feature(MetadataVersion.FEATURE_NAME, version.featureLevel()));
        if (elr) bootstrap.add(feature(EligibleLeaderReplicasVersion.FEATURE_NAME, (short) 1));

        raft = new MemoryRaft(controllerId, time);
        controller = new QuorumController.Builder(controllerId, CLUSTER_ID)
            .setTime(time)
            .setConfigSchema(KafkaRaftServer.configSchema())
            .setRaftClient(raft)
            .setQuorumFeatures(new QuorumFeatures(controllerId,
                QuorumFeatures.defaultSupportedFeatureMap(true), List.of(controllerId)))
            .setDefaultReplicationFactor((short) config.defaultReplicationFactor())
            .setDefaultNumPartitions(config.numPartitions())
            .setReplicaPlacer(new StripedReplicaPlacer(new Random(options.path("placement_seed").asLong(0))))
            .setSessionTimeoutNs(sessionTimeoutNs)
            .setLeaderImbalanceCheckIntervalNs(imbalanceSeconds > 0
                ? OptionalLong.of(SECONDS.toNanos(imbalanceSeconds)) : OptionalLong.empty())
            .setMaxIdleIntervalNs(OptionalLong.empty())
            .setDelegationTokenSecretKey(tokens.secretKey())
            .setDelegationTokenExpiryCheckIntervalMs(
                options.path("delegation_token_expiry_check_interval_ms").asLong(3_600_000))
            .setControllerPerformanceSamplePeriodMs(NEVER_MS)
            .setMetrics(metrics())
            .setConfigurationValidator(new ControllerConfigurationValidator(config))
            .setStaticConfig(Map.copyOf(config.originals()))
            .setBootstrapMetadata(BootstrapMetadata.fromRecords(bootstrap, "options"))
            .setFatalFaultHandler(faultHandler("fatal fault"))
            .setNonFatalFaultHandler(faultHandler("fault"))
            .setDelegationTokenCache(tokens.cache)
            .setDelegationTokenMaxLifeMs(options.path("delegation_token_max_lifetime_ms").asLong(604_800_000L))
            .setDelegationTokenExpiryTimeMs(options.path("delegation_token_expiry_time_ms").asLong(86_400_000L))
            .setUncleanLeaderElectionCheckIntervalMs(
                options.path("unclean_leader_election_interval_ms").asLong(300_000))
            .build();
        ControllerProbe.setClockOfTokens(controller, time);
        settle();
    }

    private static ApiMessageAndVersion feature(String name, short level) {
        return new ApiMessageAndVersion(new FeatureLevelRecord().setName(name).setFeatureLevel(level), (short) 0);
    }

    private static MetadataVersion metadataVersion(JsonNode node) {
        if (node.isMissingNode() || node.isNull()) return MetadataVersion.LATEST_PRODUCTION;
        return node.isNumber() ? MetadataVersion.fromFeatureLevel((short) node.asInt())
            : MetadataVersion.fromVersionString(node.asText(), true);
    }

    /**
     * Kafka's event queue gives timers that fall due at one instant deadlines a nanosecond apart, and the
     * controller reschedules from the time at which a timer ran. Here every event begins at a full millisecond
     * (the controller tells its metrics that an event begins), so that no nanoseconds add up: timers of one
     * millisecond run in the order in which they were scheduled.
     */
    private QuorumControllerMetrics metrics() {
        return new QuorumControllerMetrics(Optional.empty(), time, 0) {
            @Override
            public void incrementOperationsStarted() {
                time.snap();
                super.incrementOperationsStarted();
            }
        };
    }

    private FaultHandler faultHandler(String kind) {
        return (message, cause) -> {
            synchronized (faults) {
                faults.add(kind + ": " + message + (cause == null ? "" : ": " + cause));
            }
            return new RuntimeException(message, cause);
        };
    }

    /** Faults since the last call: situations that Kafka itself holds to be impossible. */
    List<String> takeFaults() {
        synchronized (faults) {
            List<String> out = new ArrayList<>(faults);
            faults.clear();
            return out;
        }
    }

    /** Waits until the controller has nothing left to do at the present time. */
    void settle() throws Exception {
        int before;
        do {
            before = raft.batches() + raft.resignations();
            CompletableFuture<Void> idle = new CompletableFuture<>();
            controller.appendControlEvent("settle", () -> idle.complete(null));
            idle.get(60, SECONDS);
        } while (raft.batches() + raft.resignations() != before);
        for (MemoryRaft.Appended batch : raft.since(learned)) {
            batch.records().forEach(record -> names.learn(record.message()));
            batch.records().forEach(record -> tokens.learn(record.message()));
            learned++;
        }
    }

    /**
     * Moves the clock forward, stopping at every instant at which the controller's own timers fall
     * due. The brokers in alive keep their sessions: they count as heard from at each instant.
     */
    void advance(long ms, Set<Integer> alive) throws Exception {
        long target = time.nanoseconds() + MILLISECONDS.toNanos(ms);
        while (true) {
            OptionalLong next = ControllerProbe.nextDeadline(controller);
            if (next.isEmpty() || next.getAsLong() >= target + MILLISECONDS.toNanos(1)) break;
            moveTo(next.getAsLong(), alive);
        }
        moveTo(target, alive);
    }

    private void moveTo(long ns, Set<Integer> alive) throws Exception {
        for (int broker : alive) ControllerProbe.setLastContact(controller, broker, ns - ns % 1_000_000L);
        time.moveTo(ns);
        settle();
    }

    /** Lets one broker's session end now; the clock stands still. False if it had no session. */
    boolean expire(int brokerId) throws Exception {
        if (!ControllerProbe.hasSession(controller, brokerId)) return false;
        ControllerProbe.setLastContact(controller, brokerId, time.nanoseconds() - sessionTimeoutNs - 1);
        while (ControllerProbe.hasSession(controller, brokerId)) {
            ControllerProbe.checkSessions(controller).get(60, SECONDS);
        }
        settle();
        return true;
    }

    /** What was appended since the last call: batches of records, and the times of the batches. */
    ArrayNode takeBatches(ArrayNode timesMs) {
        ArrayNode out = JsonNodeFactory.instance.arrayNode();
        for (MemoryRaft.Appended batch : raft.since(seen)) {
            ArrayNode records = out.addArray();
            batch.records().forEach(record -> records.add(names.json(record)));
            timesMs.add(batch.atMs());
            seen++;
        }
        return out;
    }

    @Override
    public void close() throws Exception {
        controller.beginShutdown();
        controller.close();
    }
}
