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
import java.util.List;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.common.protocol.Errors;

/** Reads operations, one JSON object a line, and prints for each what the real controller did. */
public final class Main {
    private static final ObjectMapper JSON = new ObjectMapper();

    private Main() {
    }

    public static void main(String[] args) throws Exception {
        FixedRandom.install();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8), 1 << 16);
        PrintStream out = new PrintStream(new java.io.FileOutputStream(java.io.FileDescriptor.out), false, StandardCharsets.UTF_8);
        java.io.BufferedWriter writer = new java.io.BufferedWriter(
            new java.io.OutputStreamWriter(out, StandardCharsets.UTF_8), 1 << 16);
        Cluster cluster = null;
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            if (line.isBlank()) continue;
            ObjectNode answer = JsonNodeFactory.instance.objectNode();
            String op = "?";
            try {
                JsonNode request = JSON.readTree(line);
                op = request.path("op").asText("?");
                answer.put("op", op);
                if (op.equals("Reset")) {
                    if (cluster != null) cluster.close();
                    cluster = null;
                    answer.putNull("error");
                } else if (op.equals("Options")) {
                    if (cluster != null) throw new IllegalArgumentException("Options must be the first operation of a script");
                    cluster = new Cluster(request);
                    answer.putNull("error");
                    finish(cluster, op, answer);
                    answer.put("next_offset", cluster.raft.logEndOffset());
                } else {
                    if (cluster == null) {
                        cluster = new Cluster(JsonNodeFactory.instance.objectNode());
                        cluster.takeBatches(JsonNodeFactory.instance.arrayNode());
                    }
                    run(cluster, op, request, answer);
                    finish(cluster, op, answer);
                }
            } catch (RuntimeException | java.io.IOException e) {
                answer.removeAll();
                answer.put("op", op);
                answer.putObject("error").put("error", "BAD_SCRIPT").put("code", -2).put("message", String.valueOf(e));
                answer.putArray("batches");
            }
            writer.write(JSON.writeValueAsString(answer));
            writer.write('\n');
        }
        if (cluster != null) cluster.close();
        writer.flush();
        System.exit(0);
    }

    private static void run(Cluster cluster, String op, JsonNode request, ObjectNode answer) throws Exception {
        try {
            answer.putNull("error");
            new Ops(cluster).run(op, request, answer);
        } catch (Ops.BadScript e) {
            throw e;
        } catch (Exception e) {
            Throwable cause = e;
            while ((cause instanceof ExecutionException || cause instanceof CompletionException) && cause.getCause() != null)
                cause = cause.getCause();
            Errors error = Errors.forException(cause);
            if (error == Errors.UNKNOWN_SERVER_ERROR && !(e instanceof ExecutionException)) throw e;
            answer.set("error", Ops.error(error, cause.getMessage()));
        }
        cluster.settle();
    }

    private static void finish(Cluster cluster, String op, ObjectNode answer) {
        ArrayNode times = JsonNodeFactory.instance.arrayNode();
        answer.set("batches", cluster.takeBatches(times));
        if (op.equals("AdvanceTime")) answer.set("times_ms", times);
        List<String> faults = cluster.takeFaults();
        if (!faults.isEmpty()) faults.forEach(answer.withArray("faults")::add);
    }
}
