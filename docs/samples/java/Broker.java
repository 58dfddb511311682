import com.fasterxml.jackson.databind.JsonNode;
import java.nio.ByteBuffer;
import java.security.MessageDigest;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.List;

/**
 * A broker without messages: it registers, follows the metadata log, comes back after fencing, and stops in order.
 * docs/broker-protocol.md has the reason for each step; Client.java asks the controllers, Log.java reads the log.
 */
public class Broker {
    final int id;
    final Client controllers;
    Log log = new Log();  // what it says up to the position
    boolean registered;
    long epoch = -1, sessionMs, maxWaitMs;  // of the newest registration
    long answeredSentMs;  // when the last answered poll was sent
    long servesFrom;  // a fencing may lie below this offset
    volatile boolean stopping;

    Broker(String clusterId, int id, List<String> urls) {
        this.id = id;
        controllers = new Client(clusterId, id, urls);
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
        var answer = controllers.post("/v1/brokers/register", 3_000, controllers.request()
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
        var answer = controllers.post("/v1/metadata/fetch", waitMs + sessionMs / 6, controllers.request()
            .put("broker_epoch", epoch).put("fetch_offset", log.offset).put("last_epoch", log.lastEpoch)
            .put("last_crc", log.crc).put("applied_offset", log.offset).put("want_fence", false)
            .put("want_shut_down", wantsEnd).put("max_wait_ms", waitMs).put("max_bytes", 1 << 20)
            .putPOJO("offline_log_dirs", List.of()).putNull("cordoned_log_dirs"));
        if (answer == null) {
            registered = !controllers.refusal.equals("STALE_BROKER_EPOCH");  // after this one error: register again
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
                var file = controllers.get("/v1/metadata/snapshots/" + offer.get("id").textValue());
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

    static long nowMs() { return System.nanoTime() / 1_000_000; }
}
