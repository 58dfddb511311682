import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.net.URI;
import java.net.http.*;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse.BodyHandlers;
import java.nio.ByteBuffer;
import java.security.MessageDigest;
import java.security.SecureRandom;
import java.time.Duration;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.List;
import java.util.Optional;

/**
 * A broker without messages: it registers, follows the metadata log, comes back after fencing, and stops in order.
 * docs/broker-protocol.md has the reason for each step; Log.java reads the log.
 */
public class Broker {
    final HttpClient http = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();
    final int id;
    final List<String> urls;
    final ObjectNode ids;  // every request has them
    String url, refusal;  // of the controller that is asked, and the error of its newest answer
    int turn;  // how many were asked without success
    Log log = new Log();  // what it says up to the position
    boolean registered;
    long epoch = -1, sessionMs, maxWaitMs;  // of the newest registration
    long answeredSentMs;  // when the last answered poll was sent
    long servesFrom;  // a fencing may lie below this offset
    volatile boolean stopping;

    Broker(String clusterId, int id, List<String> urls) {
        var incarnation = new byte[16];
        new SecureRandom().nextBytes(incarnation);
        this.id = id;
        this.urls = urls;
        url = urls.get(0);
        ids = Log.MSGPACK.createObjectNode()
            .put("cluster_id", clusterId).put("broker_id", id).put("incarnation_id", incarnation);
    }

    public static void main(String[] args) throws Exception {
        var broker = new Broker(args[0], Integer.parseInt(args[1]), List.of(args).subList(2, args.length));
        Thread main = Thread.currentThread();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {  // at SIGTERM: the process ends after it
            broker.stopping = true;
            try { main.join(); } catch (InterruptedException e) { /* it ends at once */ }
        }));
        while (broker.registered || !broker.stopping) {
            if (!broker.registered) broker.register();
            else if (broker.poll()) return;
        }
    }

    /** Asks for an epoch. The position stays: a process that runs on has lost nothing. */
    void register() throws Exception {
        var answer = post("/v1/brokers/register", 3_000, ids.deepCopy()
            .put("previous_broker_epoch", epoch).putNull("rack")
            .putPOJO("endpoints", List.of(List.of("PLAINTEXT", "127.0.0.1", 9092, 0)))
            .putPOJO("log_dirs", List.of("log dir %08d".formatted(id).getBytes()))  // 16 bytes, of the directory for good
            .putPOJO("features", List.of(List.of("metadata.version", 25, 30), List.of("metaquorum.version", 1, 5),
                List.of("eligible.leader.replicas.version", 0, 1), List.of("transaction.version", 0, 2), List.of("group.version", 0, 1),
                List.of("share.version", 0, 1), List.of("streams.version", 0, 1))));  // any level: it has no messages
        if (answer == null) return;
        JsonNode granted = Log.MSGPACK.readTree(answer.body());
        epoch = granted.get("broker_epoch").longValue();
        sessionMs = granted.get("session_timeout_ms").longValue();
        maxWaitMs = granted.get("max_wait_ms").longValue();
        answeredSentMs = nowMs() - sessionMs;  // the session begins with the first poll
        registered = true;
    }

    /** Asks for what follows the position, and is the heartbeat. Returns whether the process may end. */
    boolean poll() throws Exception {
        boolean wantsEnd = stopping;
        // Without a session: a parked poll would begin one only once it is answered.
        long sentMs = nowMs(), waitMs = wantsEnd ? 100 : hasSession() ? maxWaitMs : 0;
        var answer = post("/v1/metadata/fetch", waitMs + sessionMs / 6, ids.deepCopy()
            .put("broker_epoch", epoch).put("fetch_offset", log.offset).put("last_epoch", log.lastEpoch)
            .put("last_crc", log.crc).put("applied_offset", log.offset).put("want_fence", false)
            .put("want_shut_down", wantsEnd).put("max_wait_ms", waitMs).put("max_bytes", 1 << 20)
            .putPOJO("offline_log_dirs", List.of()).putNull("cordoned_log_dirs"));
        if (answer == null) {
            registered = !refusal.equals("STALE_BROKER_EPOCH");  // after this one error: register again
            return false;
        }
        int headBytes = ByteBuffer.wrap(answer.body()).getInt();
        JsonNode head = Log.MSGPACK.readTree(answer.body(), 4, headBytes), offer = head.get("snapshot");
        String kind = head.get("kind").textValue();
        if (!mayServe() || !kind.equals("DELTA")) servesFrom = head.get("high_watermark").longValue();
        sessionMs = answer.headers().firstValueAsLong("X-Session-Timeout-Ms").orElse(sessionMs);
        answeredSentMs = sentMs;
        switch (kind) {
            case "DELTA" -> log.apply(answer.body(), 4 + headBytes);  // no frames: nothing is new
            case "IMAGE" -> {  // the log does not reach back. Without a whole file, the next poll gets the offer again
                var file = send("/v1/metadata/snapshots/" + offer.get("id").textValue(), 60_000, HttpRequest.newBuilder());
                byte[] sha256 = HexFormat.of().parseHex(offer.get("sha256").textValue());
                if (file != null && Arrays.equals(MessageDigest.getInstance("SHA-256").digest(file.body()), sha256))
                    log = Log.ofSnapshot(file.body());
            }
            case "DIVERGING" -> log = new Log();  // of another history: all again, since no older position is kept
            default -> throw new IllegalStateException("an answer of kind " + kind);
        }
        return wantsEnd && head.get("should_shut_down").booleanValue();
    }

    /** Returns whether clients may be served now. A broker with messages asks before each request of a client. */
    boolean mayServe() { return log.online.getOrDefault(id, -1L) == epoch && log.offset >= servesFrom && hasSession(); }

    /** Compares with 99 % of the session: two clocks may differ in pace by one. */
    boolean hasSession() { return nowMs() - answeredSentMs < sessionMs * 99 / 100; }

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

    /** Returns an answer, or null if there is none in time. */
    HttpResponse<byte[]> send(String path, long patienceMs, HttpRequest.Builder request) throws InterruptedException {
        try {
            return http.send(request.uri(URI.create(url + path)).timeout(Duration.ofMillis(patienceMs)).build(), BodyHandlers.ofByteArray());
        } catch (IOException e) {
            return null;
        }
    }

    static long nowMs() { return System.nanoTime() / 1_000_000; }
}
