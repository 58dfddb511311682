package differential;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import kafka.server.KafkaConfig;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.coordinator.group.GroupConfig;
import org.apache.kafka.server.config.DynamicConfig;
import org.apache.kafka.server.metrics.ClientMetricsConfigs;
import org.apache.kafka.storage.internals.log.LogConfig;
import scala.jdk.javaapi.OptionConverters;

/** Prints the settings that Kafka knows of a type of resource, with type and default, and the type of each name that is asked. */
public final class Settings {
    private static final ObjectMapper JSON = new ObjectMapper();

    private Settings() {
    }

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(new java.io.FileOutputStream(java.io.FileDescriptor.out), false, StandardCharsets.UTF_8);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            JsonNode asked = JSON.readTree(line);
            String of = asked.get("of").asText();
            ObjectNode answer = JsonNodeFactory.instance.objectNode();
            ObjectNode known = answer.putObject("known");
            new TreeMap<>(keys(of)).forEach((name, key) -> known.set(name, described(key)));
            ArrayNode types = answer.putArray("types");
            for (JsonNode name : asked.get("names")) types.add(type(of, name.asText()).map(Enum::name).orElse(null));
            out.println(JSON.writeValueAsString(answer));
        }
        out.flush();
        System.exit(0);
    }

    private static Map<String, ConfigDef.ConfigKey> keys(String of) {
        switch (of) {
            case "topic": return LogConfig.configKeys();
            case "group": return GroupConfig.CONFIG_DEF.configKeys();
            case "client_metrics": return ClientMetricsConfigs.configDef().configKeys();
            default:
                Map<String, ConfigDef.ConfigKey> all = new HashMap<>(KafkaConfig.configDef().configKeys());
                all.putAll(DynamicConfig.Broker.configKeys());
                return all;
        }
    }

    private static ArrayNode described(ConfigDef.ConfigKey key) {
        ArrayNode row = JsonNodeFactory.instance.arrayNode();
        row.add(key.type.name());
        Object value = key.hasDefault() ? key.defaultValue : null;
        return row.add(ConfigDef.convertToString(value, key.type));
    }

    private static Optional<ConfigDef.Type> type(String of, String name) {
        switch (of) {
            case "topic": return LogConfig.configType(name);
            case "group": return GroupConfig.configType(name);
            case "client_metrics": return ClientMetricsConfigs.configType(name);
            default: return OptionConverters.toJava(KafkaConfig.configType(name));
        }
    }
}
