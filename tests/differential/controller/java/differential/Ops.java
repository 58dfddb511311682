package differential;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.nio.charset.StandardCharsets;
import java.util.AbstractMap.SimpleImmutableEntry;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.OptionalLong;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AccessControlEntryFilter;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.message.AllocateProducerIdsRequestData;
import org.apache.kafka.common.message.AlterPartitionReassignmentsRequestData;
import org.apache.kafka.common.message.AlterPartitionReassignmentsRequestData.ReassignablePartition;
import org.apache.kafka.common.message.AlterPartitionReassignmentsRequestData.ReassignableTopic;
import org.apache.kafka.common.message.AlterPartitionRequestData;
import org.apache.kafka.common.message.AlterUserScramCredentialsRequestData;
import org.apache.kafka.common.message.AssignReplicasToDirsRequestData;
import org.apache.kafka.common.message.BrokerHeartbeatRequestData;
import org.apache.kafka.common.message.BrokerRegistrationRequestData;
import org.apache.kafka.common.message.ControllerRegistrationRequestData;
import org.apache.kafka.common.message.CreatePartitionsRequestData.CreatePartitionsAssignment;
import org.apache.kafka.common.message.CreatePartitionsRequestData.CreatePartitionsTopic;
import org.apache.kafka.common.message.CreateTopicsRequestData;
import org.apache.kafka.common.message.ElectLeadersRequestData;
import org.apache.kafka.common.message.ListPartitionReassignmentsRequestData;
import org.apache.kafka.common.message.RequestHeaderData;
import org.apache.kafka.common.message.UpdateFeaturesRequestData;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.quota.ClientQuotaAlteration;
import org.apache.kafka.common.quota.ClientQuotaEntity;
import org.apache.kafka.common.requests.ApiError;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourcePatternFilter;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.controller.ControllerProbe;
import org.apache.kafka.controller.ControllerRequestContext;
import org.apache.kafka.controller.QuorumController;
import org.apache.kafka.metadata.BrokerRegistration;
import org.apache.kafka.metadata.PartitionRegistration;

/** Every operation of a script: JSON to Kafka's request, the call, Kafka's answer to JSON. */
final class Ops {
    /** A line that is no operation. */
    static final class BadScript extends IllegalArgumentException {
        BadScript(String message) {
            super(message);
        }
    }

    private static final JsonNodeFactory NODES = JsonNodeFactory.instance;

    private final Cluster cluster;
    private final QuorumController controller;
    private final Names names;

    Ops(Cluster cluster) {
        this.cluster = cluster;
        this.controller = cluster.controller;
        this.names = cluster.names;
    }

    void run(String op, JsonNode r, ObjectNode out) throws Exception {
        switch (op) {
            case "RegisterBroker" -> registerBroker(r, out);
            case "BrokerHeartbeat" -> brokerHeartbeat(r, out);
            case "UnregisterBroker" -> get(controller.unregisterBroker(context(ApiKeys.UNREGISTER_BROKER), r.get("broker_id").asInt()));
            case "RegisterController" -> registerController(r);
            case "CreateTopics" -> createTopics(r, out);
            case "DeleteTopics" -> deleteTopics(r, out);
            case "CreatePartitions" -> createPartitions(r, out);
            case "AlterPartition" -> alterPartition(r, out);
            case "ElectLeaders" -> electLeaders(r, out);
            case "AlterPartitionReassignments" -> alterReassignments(r, out);
            case "ListPartitionReassignments" -> listReassignments(r, out);
            case "IncrementalAlterConfigs" -> incrementalAlterConfigs(r, out);
            case "LegacyAlterConfigs" -> legacyAlterConfigs(r, out);
            case "AllocateProducerIds" -> allocateProducerIds(r, out);
            case "AlterClientQuotas" -> alterClientQuotas(r, out);
            case "AlterUserScramCredentials" -> alterScram(r, out);
            case "UpdateFeatures" -> updateFeatures(r, out);
            case "CreateAcls" -> createAcls(r, out);
            case "DeleteAcls" -> deleteAcls(r, out);
            case "AssignReplicasToDirs" -> assignReplicasToDirs(r, out);
            case "CreateDelegationToken" -> new TokenOps(cluster).create(r, out);
            case "RenewDelegationToken" -> new TokenOps(cluster).renew(r, out);
            case "ExpireDelegationToken" -> new TokenOps(cluster).expire(r, out);
            case "AdvanceTime" -> cluster.advance(r.get("ms").asLong(), alive(r.path("alive")));
            case "FenceBroker" -> out.putObject("response").put("expired", cluster.expire(r.get("broker_id").asInt()));
            case "State" -> state(out);
            default -> throw new BadScript("unknown op " + op);
        }
    }

    // Brokers

    private void registerBroker(JsonNode r, ObjectNode out) throws Exception {
        int id = r.get("broker_id").asInt();
        BrokerRegistrationRequestData request = new BrokerRegistrationRequestData()
            .setBrokerId(id)
            .setClusterId(r.path("cluster_id").asText(Cluster.CLUSTER_ID))
            .setIncarnationId(names.uuid(r.path("incarnation_id").asText("b" + id + "-1")))
            .setRack(text(r.get("rack")))
            .setLogDirs(uuids(r, "log_dirs", List.of("d" + id + "a")))
            .setPreviousBrokerEpoch(relative(r.get("previous_broker_epoch"), currentEpoch(id), -1, "previous", names.previousEpoch(id)));
        BrokerRegistrationRequestData.ListenerCollection listeners = new BrokerRegistrationRequestData.ListenerCollection();
        if (r.hasNonNull("listeners")) {
            for (JsonNode l : r.get("listeners")) {
                listeners.add(new BrokerRegistrationRequestData.Listener()
                    .setName(l.get("name").asText()).setHost(l.path("host").asText("b" + id))
                    .setPort(l.path("port").asInt(9092)).setSecurityProtocol((short) l.path("security_protocol").asInt(0)));
            }
        } else {
            listeners.add(new BrokerRegistrationRequestData.Listener()
                .setName("PLAINTEXT").setHost("b" + id).setPort(9092).setSecurityProtocol((short) 0));
        }
        request.setListeners(listeners);
        BrokerRegistrationRequestData.FeatureCollection features = new BrokerRegistrationRequestData.FeatureCollection();
        if (r.hasNonNull("features")) {
            for (JsonNode f : r.get("features")) {
                features.add(new BrokerRegistrationRequestData.Feature().setName(f.get("name").asText())
                    .setMinSupportedVersion((short) f.get("min_supported_version").asInt())
                    .setMaxSupportedVersion((short) f.get("max_supported_version").asInt()));
            }
        } else {
            features.add(new BrokerRegistrationRequestData.Feature().setName("metadata.version")
                .setMinSupportedVersion((short) 7).setMaxSupportedVersion((short) 30));
            features.add(new BrokerRegistrationRequestData.Feature().setName("eligible.leader.replicas.version")
                .setMinSupportedVersion((short) 0).setMaxSupportedVersion((short) 1));
        }
        request.setFeatures(features);
        long epoch = get(controller.registerBroker(context(ApiKeys.BROKER_REGISTRATION), request)).epoch();
        out.putObject("response").put("broker_epoch", epoch);
    }

    private void brokerHeartbeat(JsonNode r, ObjectNode out) throws Exception {
        int id = r.get("broker_id").asInt();
        OptionalLong registered = ControllerProbe.registrationOffset(controller, id);
        BrokerHeartbeatRequestData request = new BrokerHeartbeatRequestData()
            .setBrokerId(id)
            .setBrokerEpoch(brokerEpoch(r.get("broker_epoch"), id))
            .setCurrentMetadataOffset(offset(r.get("current_metadata_offset"), registered.orElse(-1)))
            .setWantFence(r.path("want_fence").asBoolean(false))
            .setWantShutDown(r.path("want_shut_down").asBoolean(false))
            .setOfflineLogDirs(uuids(r, "offline_log_dirs", List.of()))
            .setCordonedLogDirs(r.hasNonNull("cordoned_log_dirs") ? uuids(r, "cordoned_log_dirs", List.of()) : null);
        ControllerRequestContext context = r.path("late").asBoolean(false)
            ? context(ApiKeys.BROKER_HEARTBEAT, OptionalLong.of(cluster.time.nanoseconds() - 1))
            : context(ApiKeys.BROKER_HEARTBEAT);
        var reply = get(controller.processBrokerHeartbeat(context, request));
        out.putObject("response").put("is_caught_up", reply.isCaughtUp()).put("is_fenced", reply.isFenced())
            .put("in_controlled_shutdown", reply.inControlledShutdown()).put("should_shut_down", reply.shouldShutDown());
    }

    private void registerController(JsonNode r) throws Exception {
        ControllerRegistrationRequestData request = new ControllerRegistrationRequestData()
            .setControllerId(r.get("controller_id").asInt())
            .setIncarnationId(names.uuid(r.path("incarnation_id").asText("c" + r.get("controller_id").asInt() + "-1")));
        ControllerRegistrationRequestData.ListenerCollection listeners = new ControllerRegistrationRequestData.ListenerCollection();
        listeners.add(new ControllerRegistrationRequestData.Listener().setName("CONTROLLER")
            .setHost("c" + r.get("controller_id").asInt()).setPort(9093).setSecurityProtocol((short) 0));
        request.setListeners(listeners);
        ControllerRegistrationRequestData.FeatureCollection features = new ControllerRegistrationRequestData.FeatureCollection();
        for (JsonNode f : r.path("features")) {
            features.add(new ControllerRegistrationRequestData.Feature().setName(f.get("name").asText())
                .setMinSupportedVersion((short) f.get("min_supported_version").asInt())
                .setMaxSupportedVersion((short) f.get("max_supported_version").asInt()));
        }
        request.setFeatures(features);
        get(controller.registerController(context(ApiKeys.CONTROLLER_REGISTRATION), request));
    }

    private Set<Integer> alive(JsonNode node) {
        Set<Integer> out = new TreeSet<>();
        if (node.isTextual() && node.asText().equals("all")) ControllerProbe.brokerIds(controller).forEach(out::add);
        else node.forEach(id -> out.add(id.asInt()));
        return out;
    }

    // Topics

    private void createTopics(JsonNode r, ObjectNode out) throws Exception {
        List<String> asked = new ArrayList<>();
        r.get("topics").forEach(t -> asked.add(t.get("name").asText()));
        Set<String> twice = duplicates(asked);
        CreateTopicsRequestData.CreatableTopicCollection topics = new CreateTopicsRequestData.CreatableTopicCollection();
        for (JsonNode t : r.get("topics")) {
            String name = t.get("name").asText();
            if (twice.contains(name)) continue;
            CreateTopicsRequestData.CreatableTopic topic = new CreateTopicsRequestData.CreatableTopic().setName(name)
                .setNumPartitions(t.path("num_partitions").asInt(-1))
                .setReplicationFactor((short) t.path("replication_factor").asInt(-1));
            CreateTopicsRequestData.CreatableReplicaAssignmentCollection assignments =
                new CreateTopicsRequestData.CreatableReplicaAssignmentCollection();
            int next = 0;
            for (JsonNode a : t.path("assignments")) {
                JsonNode ids = a.isArray() ? a : a.get("broker_ids");
                int index = a.isArray() ? next : a.get("partition_index").asInt();
                next = index + 1;
                assignments.add(new CreateTopicsRequestData.CreatableReplicaAssignment()
                    .setPartitionIndex(index).setBrokerIds(ints(ids)));
            }
            CreateTopicsRequestData.CreatableTopicConfigCollection configs =
                new CreateTopicsRequestData.CreatableTopicConfigCollection();
            t.path("configs").fields().forEachRemaining(c -> configs.add(
                new CreateTopicsRequestData.CreatableTopicConfig().setName(c.getKey()).setValue(text(c.getValue()))));
            topics.add(topic.setAssignments(assignments).setConfigs(configs));
        }
        Map<String, ObjectNode> results = new LinkedHashMap<>();
        twice.forEach(name -> results.put(name, result(Errors.INVALID_REQUEST, "Duplicate topic name.").put("name", name)));
        var response = get(controller.createTopics(context(ApiKeys.CREATE_TOPICS), new CreateTopicsRequestData()
            .setTopics(topics).setValidateOnly(r.path("validate_only").asBoolean(false)), new HashSet<>(asked), false));
        cluster.settle();
        response.topics().forEach(t -> {
            ObjectNode result = result(Errors.forCode(t.errorCode()), t.errorMessage()).put("name", t.name());
            if (t.errorCode() == 0) {
                result.put("topic_id", names.label(t.topicId()));
                result.put("num_partitions", t.numPartitions()).put("replication_factor", t.replicationFactor());
            }
            results.put(t.name(), result);
        });
        ArrayNode list = out.putArray("results");
        new LinkedHashSet<>(asked).forEach(name -> list.add(results.get(name)));
    }

    private void deleteTopics(JsonNode r, ObjectNode out) throws Exception {
        List<String> asked = new ArrayList<>();
        Map<String, Uuid> ids = new LinkedHashMap<>();
        boolean byId = r.hasNonNull("topic_ids");
        (byId ? r.get("topic_ids") : r.get("topic_names")).forEach(t -> asked.add(t.asText()));
        Map<String, ObjectNode> results = new LinkedHashMap<>();
        for (String t : duplicates(asked)) {
            results.put(t, result(Errors.INVALID_REQUEST, byId ? "Duplicate topic id." : "Duplicate topic name."));
        }
        for (String t : asked) {
            if (results.containsKey(t)) continue;
            if (byId) {
                ids.put(t, names.uuid(t));
            } else {
                var found = get(controller.findTopicIds(context(ApiKeys.DELETE_TOPICS), List.of(t))).get(t);
                if (found.isError()) results.put(t, result(found.error().error(), found.error().message()));
                else ids.put(t, found.result());
            }
        }
        Map<Uuid, ApiError> answers = get(controller.deleteTopics(context(ApiKeys.DELETE_TOPICS), ids.values()));
        ids.forEach((t, id) -> results.put(t, result(answers.get(id).error(), answers.get(id).message())));
        ArrayNode list = out.putArray("results");
        new LinkedHashSet<>(asked).forEach(t -> list.add(results.get(t).put(byId ? "topic_id" : "name", t)));
    }

    private void createPartitions(JsonNode r, ObjectNode out) throws Exception {
        List<String> asked = new ArrayList<>();
        r.get("topics").forEach(t -> asked.add(t.get("name").asText()));
        Set<String> twice = duplicates(asked);
        List<CreatePartitionsTopic> topics = new ArrayList<>();
        for (JsonNode t : r.get("topics")) {
            if (twice.contains(t.get("name").asText())) continue;
            List<CreatePartitionsAssignment> assignments = null;
            if (t.hasNonNull("assignments")) {
                assignments = new ArrayList<>();
                for (JsonNode a : t.get("assignments")) assignments.add(new CreatePartitionsAssignment().setBrokerIds(ints(a.isArray() ? a : a.get("broker_ids"))));
            }
            topics.add(new CreatePartitionsTopic().setName(t.get("name").asText()).setCount(t.get("count").asInt()).setAssignments(assignments));
        }
        Map<String, ObjectNode> results = new LinkedHashMap<>();
        twice.forEach(name -> results.put(name, result(Errors.INVALID_REQUEST, "Duplicate topic name.").put("name", name)));
        get(controller.createPartitions(context(ApiKeys.CREATE_PARTITIONS), topics, r.path("validate_only").asBoolean(false)))
            .forEach(t -> results.put(t.name(), result(Errors.forCode(t.errorCode()), t.errorMessage()).put("name", t.name())));
        ArrayNode list = out.putArray("results");
        new LinkedHashSet<>(asked).forEach(name -> list.add(results.get(name)));
    }

    // Partitions

    private void alterPartition(JsonNode r, ObjectNode out) throws Exception {
        List<AlterPartitionRequestData.TopicData> topics = new ArrayList<>();
        List<String> asked = new ArrayList<>();
        int leader = -1;
        for (JsonNode t : r.get("topics")) {
            Uuid id = topicRef(t);
            List<AlterPartitionRequestData.PartitionData> partitions = new ArrayList<>();
            for (JsonNode p : t.get("partitions")) {
                asked.add(refText(t));
                int index = p.get("partition_index").asInt();
                PartitionRegistration now = ControllerProbe.partition(controller, id, index);
                if (leader == -1 && now != null) leader = now.leader;
                List<AlterPartitionRequestData.BrokerState> isr = new ArrayList<>();
                for (JsonNode b : p.get("new_isr")) {
                    int member = b.isObject() ? b.get("broker_id").asInt() : b.asInt();
                    isr.add(new AlterPartitionRequestData.BrokerState().setBrokerId(member)
                        .setBrokerEpoch(brokerEpoch(b.isObject() ? b.get("broker_epoch") : null, member)));
                }
                partitions.add(new AlterPartitionRequestData.PartitionData().setPartitionIndex(index)
                    .setLeaderEpoch((int) relative(p.get("leader_epoch"), now == null ? 0 : now.leaderEpoch))
                    .setPartitionEpoch((int) relative(p.get("partition_epoch"), now == null ? 0 : now.partitionEpoch))
                    .setLeaderRecoveryState((byte) p.path("leader_recovery_state").asInt(0))
                    .setNewIsrWithEpochs(isr));
            }
            topics.add(new AlterPartitionRequestData.TopicData().setTopicId(id).setPartitions(partitions));
        }
        int broker = r.hasNonNull("broker_id") ? r.get("broker_id").asInt() : leader;
        var response = get(controller.alterPartition(context(ApiKeys.ALTER_PARTITION), new AlterPartitionRequestData()
            .setBrokerId(broker).setBrokerEpoch(brokerEpoch(r.get("broker_epoch"), broker)).setTopics(topics)));
        ArrayNode list = out.putArray("results");
        int[] i = {0};
        response.topics().forEach(t -> t.partitions().forEach(p -> {
            ObjectNode result = result(Errors.forCode(p.errorCode()), null).put("topic", asked.get(i[0]++))
                .put("partition_index", p.partitionIndex());
            if (p.errorCode() == 0) {
                result.put("leader_id", p.leaderId()).put("leader_epoch", p.leaderEpoch());
                result.set("isr", array(p.isr()));
                result.put("leader_recovery_state", p.leaderRecoveryState()).put("partition_epoch", p.partitionEpoch());
            }
            list.add(result);
        }));
    }

    private void electLeaders(JsonNode r, ObjectNode out) throws Exception {
        ElectLeadersRequestData request = new ElectLeadersRequestData().setElectionType((byte) r.path("election_type").asInt(0));
        boolean all = !r.hasNonNull("topic_partitions");
        if (all) {
            request.setTopicPartitions(null);
        } else {
            ElectLeadersRequestData.TopicPartitionsCollection topics = new ElectLeadersRequestData.TopicPartitionsCollection();
            for (JsonNode t : r.get("topic_partitions")) {
                topics.add(new ElectLeadersRequestData.TopicPartitions().setTopic(t.get("topic").asText()).setPartitions(ints(t.get("partitions"))));
            }
            request.setTopicPartitions(topics);
        }
        var response = get(controller.electLeaders(context(ApiKeys.ELECT_LEADERS), request));
        List<ObjectNode> results = new ArrayList<>();
        response.replicaElectionResults().forEach(t -> t.partitionResult().forEach(p -> results.add(
            result(Errors.forCode(p.errorCode()), p.errorMessage()).put("topic", t.topic()).put("partition_id", p.partitionId()))));
        if (all) results.sort((a, b) -> {
            int byTopic = a.get("topic").asText().compareTo(b.get("topic").asText());
            return byTopic != 0 ? byTopic : a.get("partition_id").asInt() - b.get("partition_id").asInt();
        });
        ArrayNode list = out.putArray("results");
        results.forEach(list::add);
    }

    private void alterReassignments(JsonNode r, ObjectNode out) throws Exception {
        List<ReassignableTopic> topics = new ArrayList<>();
        for (JsonNode t : r.get("topics")) {
            List<ReassignablePartition> partitions = new ArrayList<>();
            for (JsonNode p : t.get("partitions")) {
                partitions.add(new ReassignablePartition().setPartitionIndex(p.get("partition_index").asInt())
                    .setReplicas(p.hasNonNull("replicas") ? ints(p.get("replicas")) : null));
            }
            topics.add(new ReassignableTopic().setName(t.get("name").asText()).setPartitions(partitions));
        }
        var response = get(controller.alterPartitionReassignments(context(ApiKeys.ALTER_PARTITION_REASSIGNMENTS),
            new AlterPartitionReassignmentsRequestData().setTopics(topics)
                .setAllowReplicationFactorChange(r.path("allow_replication_factor_change").asBoolean(true))));
        ArrayNode list = out.putArray("results");
        response.responses().forEach(t -> t.partitions().forEach(p -> list.add(
            result(Errors.forCode(p.errorCode()), p.errorMessage()).put("topic", t.name()).put("partition_index", p.partitionIndex()))));
    }

    private void listReassignments(JsonNode r, ObjectNode out) throws Exception {
        ListPartitionReassignmentsRequestData request = new ListPartitionReassignmentsRequestData().setTopics(null);
        if (r.hasNonNull("topics")) {
            List<ListPartitionReassignmentsRequestData.ListPartitionReassignmentsTopics> topics = new ArrayList<>();
            for (JsonNode t : r.get("topics")) {
                topics.add(new ListPartitionReassignmentsRequestData.ListPartitionReassignmentsTopics()
                    .setName(t.get("name").asText()).setPartitionIndexes(ints(t.get("partition_indexes"))));
            }
            request.setTopics(topics);
        }
        Map<String, ObjectNode> sorted = new TreeMap<>();
        get(controller.listPartitionReassignments(context(ApiKeys.LIST_PARTITION_REASSIGNMENTS), request)).topics()
            .forEach(t -> t.partitions().forEach(p -> {
                ObjectNode item = NODES.objectNode().put("topic", t.name()).put("partition_index", p.partitionIndex());
                item.set("replicas", array(p.replicas()));
                item.set("adding_replicas", array(p.addingReplicas()));
                item.set("removing_replicas", array(p.removingReplicas()));
                sorted.put(t.name() + String.format(" %09d", p.partitionIndex()), item);
            }));
        ArrayNode list = out.putObject("response").putArray("reassignments");
        sorted.values().forEach(list::add);
    }

    private void assignReplicasToDirs(JsonNode r, ObjectNode out) throws Exception {
        int broker = r.get("broker_id").asInt();
        List<AssignReplicasToDirsRequestData.DirectoryData> directories = new ArrayList<>();
        List<String> asked = new ArrayList<>();
        for (JsonNode d : r.get("directories")) {
            List<AssignReplicasToDirsRequestData.TopicData> topics = new ArrayList<>();
            for (JsonNode t : d.get("topics")) {
                List<AssignReplicasToDirsRequestData.PartitionData> partitions = new ArrayList<>();
                for (JsonNode p : t.get("partitions")) {
                    asked.add(refText(t));
                    partitions.add(new AssignReplicasToDirsRequestData.PartitionData()
                        .setPartitionIndex(p.isObject() ? p.get("partition_index").asInt() : p.asInt()));
                }
                topics.add(new AssignReplicasToDirsRequestData.TopicData().setTopicId(topicRef(t)).setPartitions(partitions));
            }
            directories.add(new AssignReplicasToDirsRequestData.DirectoryData().setId(names.uuid(d.get("id").asText())).setTopics(topics));
        }
        var response = get(controller.assignReplicasToDirs(context(ApiKeys.ASSIGN_REPLICAS_TO_DIRS), new AssignReplicasToDirsRequestData()
            .setBrokerId(broker).setBrokerEpoch(brokerEpoch(r.get("broker_epoch"), broker)).setDirectories(directories)));
        ArrayNode list = out.putArray("results");
        int[] i = {0};
        response.directories().forEach(d -> d.topics().forEach(t -> t.partitions().forEach(p -> list.add(
            result(Errors.forCode(p.errorCode()), null).put("id", names.label(d.id())).put("topic", asked.get(i[0]++))
                .put("partition_index", p.partitionIndex())))));
    }

    // Configs, features, producer ids

    private ConfigResource resource(JsonNode n) {
        JsonNode type = n.get("resource_type");
        return new ConfigResource(type.isNumber() ? ConfigResource.Type.forId((byte) type.asInt())
            : ConfigResource.Type.valueOf(type.asText()), n.path("resource_name").asText(""));
    }

    private void configResults(JsonNode r, Map<ConfigResource, ApiError> errors, Set<String> twice, ObjectNode out) {
        ArrayNode list = out.putArray("results");
        Set<ConfigResource> done = new HashSet<>();
        for (JsonNode n : r.get("resources")) {
            ConfigResource resource = resource(n);
            if (!done.add(resource)) continue;
            ApiError error = twice.contains(resource.toString())
                ? new ApiError(Errors.INVALID_REQUEST, "Each resource must appear at most once.") : errors.get(resource);
            list.add(result(error.error(), error.message()).put("resource_type", resource.type().id()).put("resource_name", resource.name()));
        }
    }

    private Set<String> duplicateResources(JsonNode r) {
        List<String> all = new ArrayList<>();
        r.get("resources").forEach(n -> all.add(resource(n).toString()));
        return duplicates(all);
    }

    private void incrementalAlterConfigs(JsonNode r, ObjectNode out) throws Exception {
        Set<String> twice = duplicateResources(r);
        Map<ConfigResource, Map<String, Map.Entry<AlterConfigOp.OpType, String>>> changes = new LinkedHashMap<>();
        for (JsonNode n : r.get("resources")) {
            if (twice.contains(resource(n).toString())) continue;
            Map<String, Map.Entry<AlterConfigOp.OpType, String>> ops = new LinkedHashMap<>();
            for (JsonNode c : n.get("configs")) {
                JsonNode op = c.get("config_operation");
                AlterConfigOp.OpType type = op == null || op.isNull() ? AlterConfigOp.OpType.SET
                    : op.isNumber() ? AlterConfigOp.OpType.forId((byte) op.asInt()) : AlterConfigOp.OpType.valueOf(op.asText());
                ops.put(c.get("name").asText(), new SimpleImmutableEntry<>(type, text(c.get("value"))));
            }
            changes.put(resource(n), ops);
        }
        configResults(r, get(controller.incrementalAlterConfigs(context(ApiKeys.INCREMENTAL_ALTER_CONFIGS), changes,
            r.path("validate_only").asBoolean(false), false)), twice, out);
    }

    private void legacyAlterConfigs(JsonNode r, ObjectNode out) throws Exception {
        Set<String> twice = duplicateResources(r);
        Map<ConfigResource, Map<String, String>> changes = new LinkedHashMap<>();
        for (JsonNode n : r.get("resources")) {
            if (twice.contains(resource(n).toString())) continue;
            Map<String, String> values = new LinkedHashMap<>();
            n.get("configs").forEach(c -> values.put(c.get("name").asText(), text(c.get("value"))));
            changes.put(resource(n), values);
        }
        configResults(r, get(controller.legacyAlterConfigs(context(ApiKeys.ALTER_CONFIGS), changes,
            r.path("validate_only").asBoolean(false), false)), twice, out);
    }

    private void allocateProducerIds(JsonNode r, ObjectNode out) throws Exception {
        int broker = r.get("broker_id").asInt();
        var response = get(controller.allocateProducerIds(context(ApiKeys.ALLOCATE_PRODUCER_IDS), new AllocateProducerIdsRequestData()
            .setBrokerId(broker).setBrokerEpoch(brokerEpoch(r.get("broker_epoch"), broker))));
        out.putObject("response").put("producer_id_start", response.producerIdStart()).put("producer_id_len", response.producerIdLen());
    }

    private void createAcls(JsonNode r, ObjectNode out) throws Exception {
        List<AclBinding> bindings = new ArrayList<>();
        for (JsonNode a : r.get("creations")) {
            bindings.add(new AclBinding(
                new ResourcePattern(ResourceType.fromString(a.get("resource_type").asText()), a.get("resource_name").asText(),
                    PatternType.fromString(a.path("resource_pattern_type").asText("LITERAL"))),
                new AccessControlEntry(a.path("principal").asText("User:ann"), a.path("host").asText("*"),
                    AclOperation.fromString(a.get("operation").asText()),
                    AclPermissionType.fromString(a.path("permission_type").asText("ALLOW")))));
        }
        ArrayNode list = out.putArray("results");
        get(controller.createAcls(context(ApiKeys.CREATE_ACLS), bindings)).forEach(result -> list.add(
            result.exception().map(e -> result(Errors.forException(e), e.getMessage())).orElseGet(() -> result(Errors.NONE, null))));
    }

    private void deleteAcls(JsonNode r, ObjectNode out) throws Exception {
        List<AclBindingFilter> filters = new ArrayList<>();
        for (JsonNode a : r.get("filters")) {
            filters.add(new AclBindingFilter(
                new ResourcePatternFilter(ResourceType.fromString(a.path("resource_type_filter").asText("ANY")),
                    text(a.get("resource_name_filter")), PatternType.fromString(a.path("pattern_type_filter").asText("ANY"))),
                new AccessControlEntryFilter(text(a.get("principal_filter")), text(a.get("host_filter")),
                    AclOperation.fromString(a.path("operation").asText("ANY")),
                    AclPermissionType.fromString(a.path("permission_type").asText("ANY")))));
        }
        ArrayNode list = out.putArray("results");
        get(controller.deleteAcls(context(ApiKeys.DELETE_ACLS), filters)).forEach(result -> list.add(
            result.exception().map(e -> result(Errors.forException(e), e.getMessage())).orElseGet(() -> result(Errors.NONE, null))
                .put("deleted", result.aclBindingDeleteResults().size())));
    }

    private void updateFeatures(JsonNode r, ObjectNode out) throws Exception {
        UpdateFeaturesRequestData.FeatureUpdateKeyCollection updates = new UpdateFeaturesRequestData.FeatureUpdateKeyCollection();
        for (JsonNode f : r.get("feature_updates")) {
            updates.add(new UpdateFeaturesRequestData.FeatureUpdateKey().setFeature(f.get("feature").asText())
                .setMaxVersionLevel((short) f.get("max_version_level").asInt())
                .setUpgradeType((byte) f.path("upgrade_type").asInt(1)));
        }
        var response = get(controller.updateFeatures(context(ApiKeys.UPDATE_FEATURES), new UpdateFeaturesRequestData()
            .setFeatureUpdates(updates).setValidateOnly(r.path("validate_only").asBoolean(false))));
        if (response.errorCode() != 0) out.set("error", error(Errors.forCode(response.errorCode()), response.errorMessage()));
    }

    // The state at this point

    private void alterClientQuotas(JsonNode r, ObjectNode out) throws Exception {
        List<ClientQuotaAlteration> alterations = new ArrayList<>();
        List<ClientQuotaEntity> entities = new ArrayList<>();
        for (JsonNode e : r.get("entries")) {
            Map<String, String> entity = new LinkedHashMap<>();
            e.get("entity").forEach(n -> entity.put(n.get("entity_type").asText(), text(n.get("entity_name"))));
            List<ClientQuotaAlteration.Op> ops = new ArrayList<>();
            e.get("ops").forEach(n -> ops.add(new ClientQuotaAlteration.Op(n.get("key").asText(),
                n.path("remove").asBoolean(false) ? null : Double.valueOf(n.get("value").asDouble()))));
            entities.add(new ClientQuotaEntity(entity));
            alterations.add(new ClientQuotaAlteration(entities.get(entities.size() - 1), ops));
        }
        Map<ClientQuotaEntity, ApiError> errors = get(controller.alterClientQuotas(
            context(ApiKeys.ALTER_CLIENT_QUOTAS), alterations, r.path("validate_only").asBoolean(false)));
        ArrayNode list = out.putArray("results");
        entities.forEach(entity -> list.add(result(errors.get(entity).error(), errors.get(entity).message())));
    }

    private void alterScram(JsonNode r, ObjectNode out) throws Exception {
        AlterUserScramCredentialsRequestData request = new AlterUserScramCredentialsRequestData();
        Set<String> asked = new LinkedHashSet<>();
        for (JsonNode d : r.path("deletions")) {
            asked.add(d.get("name").asText());
            request.deletions().add(new AlterUserScramCredentialsRequestData.ScramCredentialDeletion()
                .setName(d.get("name").asText()).setMechanism((byte) d.get("mechanism").asInt()));
        }
        for (JsonNode u : r.path("upsertions")) {
            asked.add(u.get("name").asText());
            request.upsertions().add(new AlterUserScramCredentialsRequestData.ScramCredentialUpsertion()
                .setName(u.get("name").asText()).setMechanism((byte) u.get("mechanism").asInt())
                .setIterations(u.path("iterations").asInt(4096))
                .setSalt(u.path("salt").asText("salt").getBytes(StandardCharsets.UTF_8))
                .setSaltedPassword(u.path("salted_password").asText("password").getBytes(StandardCharsets.UTF_8)));
        }
        Map<String, ObjectNode> results = new LinkedHashMap<>();
        get(controller.alterUserScramCredentials(context(ApiKeys.ALTER_USER_SCRAM_CREDENTIALS), request)).results()
            .forEach(x -> results.put(x.user(), result(Errors.forCode(x.errorCode()), x.errorMessage()).put("user", x.user())));
        ArrayNode list = out.putArray("results");
        asked.forEach(user -> list.add(results.get(user)));
    }

    private void state(ObjectNode out) {
        ObjectNode state = out.putObject("response");
        state.put("next_offset", cluster.raft.logEndOffset()).put("time_ms", cluster.time.sinceStartMs());
        ArrayNode brokers = state.putArray("brokers");
        for (int id : ControllerProbe.brokerIds(controller)) {
            BrokerRegistration b = ControllerProbe.broker(controller, id);
            ObjectNode item = brokers.addObject().put("broker_id", id).put("broker_epoch", b.epoch())
                .put("incarnation_id", names.label(b.incarnationId())).put("fenced", b.fenced())
                .put("in_controlled_shutdown", b.inControlledShutdown()).put("session", ControllerProbe.hasSession(controller, id));
            ArrayNode dirs = item.putArray("log_dirs");
            b.directories().forEach(d -> dirs.add(names.label(d)));
        }
        ArrayNode topics = state.putArray("topics");
        for (String name : names.topicNames()) {
            Uuid topicId = names.topicId(name);
            ObjectNode topic = topics.addObject().put("name", name).put("topic_id", names.label(topicId));
            ArrayNode partitions = topic.putArray("partitions");
            for (int i = 0; ControllerProbe.partition(controller, topicId, i) != null; i++) {
                PartitionRegistration p = ControllerProbe.partition(controller, topicId, i);
                ObjectNode item = partitions.addObject().put("partition", i).put("leader", p.leader)
                    .put("leader_epoch", p.leaderEpoch).put("partition_epoch", p.partitionEpoch)
                    .put("leader_recovery_state", p.leaderRecoveryState.value());
                item.set("replicas", array(p.replicas));
                item.set("isr", array(p.isr));
                item.set("adding_replicas", array(p.addingReplicas));
                item.set("removing_replicas", array(p.removingReplicas));
                item.set("eligible_leader_replicas", array(p.elr));
                item.set("last_known_elr", array(p.lastKnownElr));
                ArrayNode dirs = item.putArray("directories");
                for (Uuid dir : p.directories) dirs.add(names.label(dir));
            }
        }
    }

    // Helpers

    private static <T> T get(CompletableFuture<T> future) throws Exception {
        return future.get(60, TimeUnit.SECONDS);
    }

    private static ControllerRequestContext context(ApiKeys key) {
        return context(key, OptionalLong.empty());
    }

    private static ControllerRequestContext context(ApiKeys key, OptionalLong deadlineNs) {
        return new ControllerRequestContext(new RequestHeaderData().setRequestApiKey(key.id)
            .setRequestApiVersion(key.latestVersion()), KafkaPrincipal.ANONYMOUS, deadlineNs);
    }

    private long currentEpoch(int brokerId) {
        BrokerRegistration registration = ControllerProbe.broker(controller, brokerId);
        return registration == null ? -1 : registration.epoch();
    }

    private long brokerEpoch(JsonNode node, int brokerId) {
        long current = currentEpoch(brokerId);
        return relative(node, current, current, "previous", names.previousEpoch(brokerId));
    }

    private long offset(JsonNode node, long registrationOffset) {
        long end = cluster.raft.logEndOffset() - 1;
        if (node == null || node.isNull()) return end;
        if (node.isNumber()) return node.asLong();
        for (String word : List.of("registration", "end")) {
            if (node.asText().startsWith(word)) {
                String rest = node.asText().substring(word.length());
                return (word.equals("end") ? end : registrationOffset) + (rest.isEmpty() ? 0 : Long.parseLong(rest));
            }
        }
        throw new BadScript("not an offset: " + node);
    }

    private static long relative(JsonNode node, long current) {
        return relative(node, current, current, "", 0);
    }

    /** A number; or "+n" or "-n", from the current value; or a word for a special value; or nothing: the default. */
    private static long relative(JsonNode node, long current, long missing, String word, long meaning) {
        if (node == null || node.isNull() || node.isMissingNode()) return missing;
        if (node.isNumber()) return node.asLong();
        if (node.asText().equals("current")) return current;
        if (node.asText().equals(word)) return meaning;
        if (!node.asText().startsWith("+") && !node.asText().startsWith("-")) throw new BadScript("not a number: " + node);
        return current + Long.parseLong(node.asText());
    }

    private Uuid topicRef(JsonNode t) {
        return t.hasNonNull("topic_id") ? names.uuid(t.get("topic_id").asText()) : names.topicId(t.get("name").asText());
    }

    private static String refText(JsonNode t) {
        return t.hasNonNull("topic_id") ? t.get("topic_id").asText() : t.get("name").asText();
    }

    private List<Uuid> uuids(JsonNode r, String field, List<String> missing) {
        List<Uuid> out = new ArrayList<>();
        if (r.hasNonNull(field)) r.get(field).forEach(word -> out.add(names.uuid(word.asText())));
        else missing.forEach(word -> out.add(names.uuid(word)));
        return out;
    }

    private static Set<String> duplicates(List<String> all) {
        Set<String> once = new HashSet<>();
        Set<String> twice = new LinkedHashSet<>();
        all.forEach(item -> {
            if (!once.add(item)) twice.add(item);
        });
        return twice;
    }

    private static List<Integer> ints(JsonNode node) {
        List<Integer> out = new ArrayList<>();
        node.forEach(n -> out.add(n.asInt()));
        return out;
    }

    private static ArrayNode array(Iterable<Integer> values) {
        ArrayNode out = NODES.arrayNode();
        values.forEach(out::add);
        return out;
    }

    private static ArrayNode array(int[] values) {
        ArrayNode out = NODES.arrayNode();
        for (int value : values) out.add(value);
        return out;
    }

    private static String text(JsonNode node) {
        return node == null || node.isNull() ? null : node.asText();
    }

    static ObjectNode error(Errors error, String message) {
        return NODES.objectNode().put("error", error.name()).put("code", error.code()).put("message", message);
    }

    private static ObjectNode result(Errors error, String message) {
        ObjectNode out = NODES.objectNode();
        if (error == Errors.NONE) out.putNull("error");
        else out.put("error", error.name()).put("code", error.code()).put("message", message);
        return out;
    }
}
