import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.security.SecureRandom;
import java.time.Duration;
import java.util.List;
import java.util.Optional;

/** Asks the controllers, one at a time, in the name of one process of one broker. */
class Client {
    private final HttpClient http = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();
    private final ObjectNode ids;  // every request has them
    private final List<String> urls;
    private String url;  // of the controller that is asked
    private int turn;  // how many were asked without success
    String refusal;  // the error of the newest answer

    Client(String clusterId, int brokerId, List<String> urls) {
        var incarnation = new byte[16];
        new SecureRandom().nextBytes(incarnation);
        this.urls = urls;
        url = urls.get(0);
        ids = Log.MSGPACK.createObjectNode()
            .put("cluster_id", clusterId).put("broker_id", brokerId).put("incarnation_id", incarnation);
    }

    ObjectNode request() { return ids.deepCopy(); }

    /**
     * Returns the answer with status 200. Without one it waits and returns null: the caller acts on the refusal, or repeats
     * its request, which then goes to the controller that may answer it.
     */
    HttpResponse<byte[]> post(String path, long patienceMs, ObjectNode body) throws Exception {
        var answer = send(path, patienceMs, HttpRequest.newBuilder().header("Content-Type", "application/msgpack")
            .POST(BodyPublishers.ofByteArray(Log.MSGPACK.writeValueAsBytes(body))));
        if (answer != null && answer.statusCode() == 200) return answer;
        JsonNode error = Log.MSGPACK.createObjectNode();
        Optional<String> leader = Optional.empty();
        if (answer != null) {
            leader = answer.headers().firstValue("X-Controller");
            try { error = Log.MSGPACK.readTree(answer.body()); } catch (IOException e) { /* not of a controller */ }
        }
        Thread.sleep(50);
        refusal = error.path("error").asText();
        if (List.of("STALE_BROKER_EPOCH", "DUPLICATE_BROKER_REGISTRATION", "THROTTLING_QUOTA_EXCEEDED").contains(refusal))
            return null;  // of the right controller
        if (error.path("family").asText().equals("Rejected")) throw new IllegalStateException(error.toString());
        turn++;
        url = leader.orElse(urls.get(turn % urls.size()));
        return null;
    }

    /** Returns what the controller that answered last has there, or null if it does not come. */
    HttpResponse<byte[]> get(String path) throws InterruptedException {
        return send(path, 60_000, HttpRequest.newBuilder());
    }

    private HttpResponse<byte[]> send(String path, long patienceMs, HttpRequest.Builder request) throws InterruptedException {
        try {
            return http.send(request.uri(URI.create(url + path)).timeout(Duration.ofMillis(patienceMs)).build(), BodyHandlers.ofByteArray());
        } catch (IOException e) {
            return null;
        }
    }
}
