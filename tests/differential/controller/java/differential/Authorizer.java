package differential;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.net.InetAddress;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.errors.AuthorizerNotReadyException;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.internals.PluginMetricsImpl;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.metadata.authorizer.StandardAcl;
import org.apache.kafka.metadata.authorizer.StandardAuthorizer;
import org.apache.kafka.server.authorizer.Action;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.server.authorizer.AuthorizationResult;

/** Reads worlds, one JSON object a line: settings, ACLs and questions; prints the answers of Kafka's StandardAuthorizer. */
public final class Authorizer {
    private static final ObjectMapper JSON = new ObjectMapper();

    private Authorizer() {
    }

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(new java.io.FileOutputStream(java.io.FileDescriptor.out), false, StandardCharsets.UTF_8);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            out.println(JSON.writeValueAsString(answers(JSON.readTree(line))));
        }
        out.flush();
        System.exit(0);
    }

    private static ArrayNode answers(JsonNode world) throws Exception {
        StandardAuthorizer authorizer = new StandardAuthorizer();
        authorizer.configure(Map.of(
            "super.users", world.get("super_users").asText(),
            "allow.everyone.if.no.acl.found", world.get("allow_if_none").asBoolean()));
        Map<StandardAcl, String> ids = new HashMap<>();
        Map<Uuid, StandardAcl> acls = new HashMap<>();
        for (JsonNode each : world.get("acls")) {
            StandardAcl acl = new StandardAcl(
                ResourceType.fromCode((byte) each.get(1).asInt()), each.get(2).asText(), PatternType.fromCode((byte) each.get(3).asInt()),
                each.get(4).asText(), each.get(5).asText(),
                AclOperation.fromCode((byte) each.get(6).asInt()), AclPermissionType.fromCode((byte) each.get(7).asInt()));
            ids.put(acl, each.get(0).asText());
            acls.put(Uuid.fromString(each.get(0).asText()), acl);
        }
        authorizer.withPluginMetrics(new PluginMetricsImpl(new Metrics(), Map.of()));
        authorizer.loadSnapshot(acls);
        if (world.get("is_loaded").asBoolean()) authorizer.completeInitialLoad();
        ArrayNode answers = JsonNodeFactory.instance.arrayNode();
        for (JsonNode question : world.get("questions")) answers.add(answer(authorizer, ids, question));
        return answers;
    }

    private static ArrayNode answer(StandardAuthorizer authorizer, Map<StandardAcl, String> ids, JsonNode question) throws Exception {
        String principal = question.get(0).asText();
        int colon = principal.indexOf(':');
        KafkaPrincipal asks = new KafkaPrincipal(principal.substring(0, colon), principal.substring(colon + 1));
        InetAddress address = InetAddress.getByName(question.get(1).asText());
        Action action = new Action(AclOperation.fromCode((byte) question.get(2).asInt()), new ResourcePattern(
            ResourceType.fromCode((byte) question.get(3).asInt()), question.get(4).asText(), PatternType.LITERAL), 1, false, false);
        ArrayNode answer = JsonNodeFactory.instance.arrayNode();
        try {
            AuthorizationResult result = authorizer.authorize(new Context(asks, address), List.of(action)).get(0);
            answer.add(result == AuthorizationResult.ALLOWED);
        } catch (AuthorizerNotReadyException e) {
            return answer.addNull().addNull();
        }
        return answer.add(rule(authorizer, ids, asks, address.getHostAddress(), action));
    }

    /** The id of the ACL that decides, else Kafka's word for the rule; a super user is decided before any rule. */
    private static String rule(
        StandardAuthorizer authorizer, Map<StandardAcl, String> ids, KafkaPrincipal asks, String host, Action action
    ) throws Exception {
        Field field = StandardAuthorizer.class.getDeclaredField("data");
        field.setAccessible(true);
        Object data = field.get(authorizer);
        Field superUsers = data.getClass().getDeclaredField("superUsers");
        superUsers.setAccessible(true);
        if (((Set<?>) superUsers.get(data)).contains(asks.toString())) return "SuperUser";
        Method find = data.getClass().getDeclaredMethod("findAclRule", Set.class, String.class, Action.class);
        find.setAccessible(true);
        KafkaPrincipal everybody = new KafkaPrincipal(KafkaPrincipal.USER_TYPE, "*");
        Object rule = find.invoke(data, Set.of(asks, everybody), host, action);
        if (!rule.getClass().getSimpleName().equals("MatchingAclRule")) return rule.toString();
        Field acl = rule.getClass().getDeclaredField("acl");
        acl.setAccessible(true);
        return ids.get((StandardAcl) acl.get(rule));
    }

    private record Context(KafkaPrincipal principal, InetAddress clientAddress) implements AuthorizableRequestContext {
        @Override
        public String listenerName() {
            return "SASL";
        }

        @Override
        public SecurityProtocol securityProtocol() {
            return SecurityProtocol.SASL_PLAINTEXT;
        }

        @Override
        public int requestType() {
            return 0;
        }

        @Override
        public int requestVersion() {
            return 0;
        }

        @Override
        public String clientId() {
            return "questions";
        }

        @Override
        public int correlationId() {
            return 0;
        }
    }
}
