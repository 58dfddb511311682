package differential;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import com.fasterxml.jackson.databind.node.TextNode;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import java.util.UUID;
import org.apache.kafka.common.DirectoryId;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.metadata.AccessControlEntryRecord;
import org.apache.kafka.common.metadata.DelegationTokenRecord;
import org.apache.kafka.common.metadata.MetadataJsonConverters;
import org.apache.kafka.common.metadata.MetadataRecordType;
import org.apache.kafka.common.metadata.RegisterBrokerRecord;
import org.apache.kafka.common.metadata.RemoveTopicRecord;
import org.apache.kafka.common.metadata.TopicRecord;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.server.common.ApiMessageAndVersion;

/**
 * Stable names in place of uuids, and records as JSON. Topic ids become NAME#n (the n-th topic of
 * that name), tokens token#n; incarnations and log directories keep the words of the script.
 */
final class Names {
    private final Map<String, String> nameOfUuid = new HashMap<>();
    private final Map<String, Uuid> uuidOfLabel = new HashMap<>();
    private final Map<String, Integer> topicsMade = new HashMap<>();
    private final Map<String, Uuid> liveTopics = new HashMap<>();
    private final Map<Integer, Long> epochs = new HashMap<>();
    private int aclsMade;
    private int tokensMade;
    private final Map<Integer, Long> earlierEpochs = new HashMap<>();

    Names() {
        name("MIGRATING", DirectoryId.MIGRATING);
        name("UNASSIGNED", DirectoryId.UNASSIGNED);
        name("LOST", DirectoryId.LOST);
        name("ZERO", Uuid.ZERO_UUID);
    }

    private void name(String label, Uuid uuid) {
        nameOfUuid.put(uuid.toString(), label);
        uuidOfLabel.put(label, uuid);
    }

    /** The uuid that stands for a word of the script; the same word is always the same uuid. */
    Uuid uuid(String word) {
        Uuid known = uuidOfLabel.get(word);
        if (known != null) return known;
        ByteBuffer bytes = ByteBuffer.allocate(16);
        UUID made = UUID.nameUUIDFromBytes(word.getBytes(StandardCharsets.UTF_8));
        bytes.putLong(made.getMostSignificantBits()).putLong(made.getLeastSignificantBits()).flip();
        Uuid uuid = new Uuid(bytes.getLong(), bytes.getLong());
        name(word, uuid);
        return uuid;
    }

    /** The id of the live topic of that name, or an id that no topic has. */
    Uuid topicId(String topic) {
        Uuid id = liveTopics.get(topic);
        return id == null ? uuid("no topic " + topic) : id;
    }

    boolean topicExists(String topic) {
        return liveTopics.containsKey(topic);
    }

    Iterable<String> topicNames() {
        return liveTopics.keySet().stream().sorted().toList();
    }

    String label(Uuid uuid) {
        return nameOfUuid.get(uuid.toString());
    }

    long previousEpoch(int brokerId) {
        return earlierEpochs.getOrDefault(brokerId, -1L);
    }

    /** Learns names from a record that the controller has appended. */
    void learn(ApiMessage record) {
        if (record instanceof TopicRecord topic) {
            int n = topicsMade.merge(topic.name(), 1, Integer::sum);
            name(topic.name() + "#" + n, topic.topicId());
            liveTopics.put(topic.name(), topic.topicId());
        } else if (record instanceof RemoveTopicRecord topic) {
            liveTopics.values().remove(topic.topicId());
        } else if (record instanceof AccessControlEntryRecord acl) {
            name("acl#" + ++aclsMade, acl.id());
        } else if (record instanceof DelegationTokenRecord token) {
            if (!nameOfUuid.containsKey(token.tokenId()))
                name("token#" + ++tokensMade, Uuid.fromString(token.tokenId()));
        } else if (record instanceof RegisterBrokerRecord broker) {
            Long before = epochs.put(broker.brokerId(), broker.brokerEpoch());
            if (before != null && before != broker.brokerEpoch()) earlierEpochs.put(broker.brokerId(), before);
        }
    }

    /** A record as Kafka's own JSON converter writes it, with snake case names and uuids by name. */
    ObjectNode json(ApiMessageAndVersion message) {
        ObjectNode out = JsonNodeFactory.instance.objectNode();
        out.put("type", MetadataRecordType.fromId(message.message().apiKey()).name());
        out.put("version", message.version());
        JsonNode fields = MetadataJsonConverters.writeJson(message.message(), message.version());
        fields.fields().forEachRemaining(field -> out.set(snake(field.getKey()), tidy(field.getValue())));
        return out;
    }

    private JsonNode tidy(JsonNode node) {
        if (node.isObject()) {
            ObjectNode out = JsonNodeFactory.instance.objectNode();
            node.fields().forEachRemaining(field -> out.set(snake(field.getKey()), tidy(field.getValue())));
            return out;
        } else if (node.isArray()) {
            ArrayNode out = JsonNodeFactory.instance.arrayNode();
            node.forEach(item -> out.add(tidy(item)));
            return out;
        } else if (node.isTextual()) {
            String label = node.textValue().length() == 22 ? nameOfUuid.get(node.textValue()) : null;
            return label == null ? node : new TextNode(label);
        }
        return node;
    }

    static String snake(String camel) {
        StringBuilder out = new StringBuilder();
        for (char c : camel.toCharArray()) {
            if (Character.isUpperCase(c)) out.append('_').append(Character.toLowerCase(c));
            else out.append(c);
        }
        return out.toString();
    }
}
