import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.time.Duration;
import java.util.List;
import java.util.Optional;

/** The controllers. One at a time is asked: the leader, once one of them names it. */
class Controllers {
    private final HttpClient http = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();
    private final List<String> urls;
    private String url;  // of the one that is asked
    private int turn;  // how many were asked without success
    String refusal = "";  // the error of the newest answer; empty: none, or not of a controller

    Controllers(List<String> urls) {
        this.urls = urls;
        url = urls.get(0);
    }

    /**
     * Returns the answer with status 200. Without one it waits and returns null: the caller acts on the refusal, or repeats
     * its request, which then goes to the controller that may answer it.
     */
    HttpResponse<byte[]> post(String path, long patienceMs, ObjectNode body) throws IOException, InterruptedException {
        var request = HttpRequest.newBuilder(URI.create(url + path)).timeout(Duration.ofMillis(patienceMs))
            .header("Content-Type", "application/msgpack")
            .POST(BodyPublishers.ofByteArray(State.MSGPACK.writeValueAsBytes(body))).build();
        JsonNode error = State.MSGPACK.createObjectNode();
        Optional<String> leader = Optional.empty();
        try {
            var answer = http.send(request, BodyHandlers.ofByteArray());
            if (answer.statusCode() == 200) return answer;
            leader = answer.headers().firstValue("X-Controller");
            error = State.MSGPACK.readTree(answer.body());
        } catch (IOException e) {
            // No answer in time, or not one of a controller: the next one is asked.
        }
        Thread.sleep(50);
        refusal = error.path("error").asText();
        switch (refusal) {
            case "STALE_BROKER_EPOCH", "DUPLICATE_BROKER_REGISTRATION", "THROTTLING_QUOTA_EXCEEDED" -> { }  // of the leader
            default -> {
                if (error.path("family").asText().equals("Rejected")) throw new IllegalStateException(error.toString());
                turn++;
                url = leader.orElse(urls.get(turn % urls.size()));
            }
        }
        return null;
    }

    /** Returns a file, or what came of it. */
    byte[] snapshot(String id) throws InterruptedException {
        var uri = URI.create(url + "/v1/metadata/snapshots/" + id);
        var request = HttpRequest.newBuilder(uri).timeout(Duration.ofMinutes(1)).build();
        try {
            return http.send(request, BodyHandlers.ofByteArray()).body();
        } catch (IOException e) {
            return new byte[0];
        }
    }
}
