// A broker in Java 17, with nothing but its standard library: it registers, follows the metadata log, and stops in order.
// docs/broker-protocol.md has the reason for each step.
//
//     java Broker.java CLUSTER_ID BROKER_ID CONTROLLER_URL...

import java.io.ByteArrayOutputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.SecureRandom;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.LinkedList;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.zip.CRC32C;

public class Broker {
    /** The record types that this broker knows; 4 and 1002 have version 1, too. */
    static final List<Long> KNOWN = List.of(0L, 1L, 2L, 3L, 4L, 5L, 9L, 12L, 15L, 17L, 20L, 27L, 1000L, 1001L, 1002L, 1003L,
        1004L, 1005L, 1006L, 1007L, 1010L, 1011L);

    final HttpClient http = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).connectTimeout(Duration.ofMillis(500)).build();
    final LinkedList<String> urls;  // the controllers; the one that is asked is the first
    final Map<String, Object> who;
    final byte[] logDir = uuid();
    long epoch = -1, previousEpoch = -1;  // -1: not registered
    long offset = 0, lastEpoch = -1, crc = 0;  // the position: the end of the last frame applied
    boolean online;  // whether the log has this broker's epoch, unfenced
    long servesFrom, sessionTimeoutMs, maxWaitMs;
    long answeredSentMs = Long.MIN_VALUE / 2;  // when the last answered poll was sent
    volatile boolean stopping;

    Broker(String clusterId, long id, List<String> controllers) {
        urls = new LinkedList<>(controllers);
        who = Map.of("cluster_id", clusterId, "broker_id", id, "incarnation_id", uuid());
    }

    public static void main(String[] args) throws Exception {
        var broker = new Broker(args[0], Long.parseLong(args[1]), Arrays.asList(args).subList(2, args.length));
        Thread main = Thread.currentThread();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {  // SIGTERM: the process ends once this thread has ended
            broker.stopping = true;
            try { main.join(); } catch (InterruptedException e) { /* it ends */ }
        }));
        try {
            broker.run();
        } catch (IllegalStateException e) {
            System.err.println(e.getMessage());
            Runtime.getRuntime().halt(1);  // the hook would wait for this thread
        }
    }

    void run() throws Exception {
        for (boolean serving = false, done = false; !done; ) {
            if (epoch < 0) {
                done = stopping;
                register();
            } else {
                done = poll();
            }
            if (serving != mayServe()) {
                serving = !serving;
                System.err.println("serving: " + serving + ", at offset " + offset);
            }
        }
    }

    /** Answers whether clients may be served now; ask it before each request of a client. */
    boolean mayServe() { return online && offset >= servesFrom && hasSession(); }

    boolean hasSession() {
        return nowMs() < answeredSentMs + sessionTimeoutMs * 99 / 100;  // clocks may differ in pace by a percent
    }

    void register() throws Exception {
        var body = new HashMap<String, Object>(Map.of("previous_broker_epoch", previousEpoch, "log_dirs", List.of(logDir),
            "endpoints", List.of(List.of("PLAINTEXT", "127.0.0.1", 9092L, 0L)),
            "features", List.of(List.of("metadata.version", 25L, 30L),
                List.of("eligible.leader.replicas.version", 0L, 1L), List.of("metaquorum.version", 1L, 5L))));
        body.put("rack", null);
        var answer = post("/v1/brokers/register", body, 3_000);
        if (answer != null) {
            var told = map(new Reader(answer.body()).value());
            epoch = (long) told.get("broker_epoch");
            sessionTimeoutMs = (long) told.get("session_timeout_ms");
            maxWaitMs = (long) told.get("max_wait_ms");
            online = false;
            answeredSentMs = Long.MIN_VALUE / 2;
        }
    }

    /** Asks for what follows the position, and answers whether the process may end. */
    boolean poll() throws Exception {
        // A parked poll would renew the session only once it is answered.
        long waitMs = !hasSession() ? 0 : stopping ? Math.min(100, maxWaitMs) : maxWaitMs, sentMs = nowMs();
        var body = new HashMap<String, Object>(Map.of("broker_epoch", epoch, "fetch_offset", offset, "last_epoch", lastEpoch,
            "last_crc", crc, "applied_offset", offset, "want_fence", false, "want_shut_down", stopping,
            "offline_log_dirs", List.of(), "max_bytes", 1L << 20, "max_wait_ms", waitMs));
        body.put("cordoned_log_dirs", null);
        var answer = post("/v1/metadata/fetch", body, waitMs + sessionTimeoutMs / 6);
        if (answer == null) return false;
        int end = 4 + ByteBuffer.wrap(answer.body()).getInt();
        var head = map(new Reader(Arrays.copyOfRange(answer.body(), 4, end)).value());
        if (!mayServe() || !head.get("kind").equals("DELTA")) servesFrom = (long) head.get("high_watermark");  // its fencing may lie below
        sessionTimeoutMs = answer.headers().firstValueAsLong("X-Session-Timeout-Ms").orElse(sessionTimeoutMs);
        answeredSentMs = sentMs;
        switch ((String) head.get("kind")) {
            case "DELTA" -> apply(Arrays.copyOfRange(answer.body(), end, answer.body().length), false);
            case "IMAGE" -> install(map(head.get("snapshot")));
            default -> {  // DIVERGING: this broker keeps no cache, and begins again
                offset = crc = 0;
                lastEpoch = -1;
                online = false;
            }
        }
        return (boolean) head.get("should_shut_down") && stopping;
    }

    void install(Map<String, Object> offer) throws Exception {
        var uri = URI.create(urls.getFirst() + "/v1/metadata/snapshots/" + offer.get("id"));
        try {
            byte[] data = http.send(HttpRequest.newBuilder(uri).timeout(Duration.ofMinutes(1)).build(), BodyHandlers.ofByteArray()).body();
            var sum = HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(data));
            if (sum.equals(offer.get("sha256"))) {
                online = false;
                apply(data, true);
            }
        } catch (IOException e) { /* the next poll is offered it again */ }
    }

    /** Takes whole frames: of the log, or of a snapshot, which count from 0. At one that is damaged it stops. */
    void apply(byte[] data, boolean snapshot) {
        var bytes = ByteBuffer.wrap(data);
        for (int at = 0, end; at + 40 <= data.length; at = end) {
            end = at + 40 + bytes.getInt(at + 4);
            if (bytes.getInt(at) != 0x4D510100 || end > data.length) return;
            var sum = new CRC32C();
            sum.update(data, at, 36);
            sum.update(data, at + 40, end - at - 40);
            long base = bytes.getLong(at + 8), previous = Integer.toUnsignedLong(bytes.getInt(at + 32));
            if (sum.getValue() != Integer.toUnsignedLong(bytes.getInt(at + 36))) return;
            if (!snapshot && (base != offset || previous != crc)) return;
            for (Object record : list(list(new Reader(Arrays.copyOfRange(data, at + 40, end)).value()).get(1))) fold(list(record));
            if (!snapshot) {
                offset = base + bytes.getInt(at + 16);
                lastEpoch = bytes.getInt(at + 20);
                crc = sum.getValue();
            }
        }
    }

    /** Applies one record. A broker with messages keeps topics and partitions here, too. */
    void fold(List<Object> record) {
        long kind = (long) record.get(0), version = (long) record.get(1);
        if (!KNOWN.contains(kind) || version > (kind == 4 || kind == 1002 ? 1 : 0))
            throw new IllegalStateException("record type " + kind + " version " + version + " is of another release");
        List<Object> fields = record.subList(2, record.size());
        boolean own = !fields.isEmpty() && Objects.equals(fields.get(0), who.get("broker_id"));
        if (kind == 1002) {  // a snapshot's header: the position behind it
            offset = (long) fields.get(1);
            lastEpoch = (long) fields.get(2);
            crc = (long) fields.get(4);
        } else if (kind == 0 && own) {
            online = fields.get(2).equals(epoch) && !(boolean) fields.get(6);
        } else if (kind == 17 && own && fields.get(2) != null) {
            online = fields.get(1).equals(epoch) && !(boolean) fields.get(2);
        } else if (kind == 1 && own) {
            online = false;
        }
    }

    /** Sends a request and returns an answer with status 200. After null the broker is ready to repeat it. */
    HttpResponse<byte[]> post(String path, Map<String, Object> body, long patienceMs) throws Exception {
        body.putAll(who);
        var bytes = new ByteArrayOutputStream();
        pack(new DataOutputStream(bytes), body);
        var request = HttpRequest.newBuilder(URI.create(urls.getFirst() + path)).timeout(Duration.ofMillis(patienceMs))
            .header("Content-Type", "application/msgpack").POST(HttpRequest.BodyPublishers.ofByteArray(bytes.toByteArray())).build();
        try {
            var answer = http.send(request, BodyHandlers.ofByteArray());
            if (answer.statusCode() == 200) return answer;
            if (refused(answer)) return null;
        } catch (IOException e) { /* no answer in time, or none at all */ }
        Thread.sleep(50);
        urls.addLast(urls.removeFirst());
        return null;
    }

    /** Does what an error asks for, and answers whether the first of the controllers may be asked at once. */
    boolean refused(HttpResponse<byte[]> answer) {
        var refusal = map(new Reader(answer.body()).value());
        var error = (String) refusal.get("error");
        var leader = answer.headers().firstValue("X-Controller");
        if (error.equals("NOT_CONTROLLER") && leader.isPresent()) {
            urls.remove(leader.get());
            urls.addFirst(leader.get());
            return true;
        }
        if (error.equals("STALE_BROKER_EPOCH")) {
            previousEpoch = epoch;
            epoch = -1;
            online = false;
        } else if (refusal.get("family").equals("Rejected") && !error.equals("DUPLICATE_BROKER_REGISTRATION")) {
            throw new IllegalStateException(error + ": " + refusal.get("message"));
        }
        return false;
    }

    static byte[] uuid() {
        var id = new byte[16];
        new SecureRandom().nextBytes(id);
        return id;
    }

    static long nowMs() { return System.nanoTime() / 1_000_000; }

    @SuppressWarnings("unchecked")
    static Map<String, Object> map(Object value) { return (Map<String, Object>) value; }

    @SuppressWarnings("unchecked")
    static List<Object> list(Object value) { return (List<Object>) value; }

    // --- msgpack: what a controller sends, and enough to answer

    static void pack(DataOutputStream to, Object value) throws IOException {
        if (value == null) {
            to.write(0xc0);
        } else if (value instanceof Boolean is) {
            to.write(is ? 0xc3 : 0xc2);
        } else if (value instanceof Long number) {
            to.write(0xd3);
            to.writeLong(number);
        } else if (value instanceof String text) {
            byte[] utf8 = text.getBytes(StandardCharsets.UTF_8);
            to.write(0xda);
            to.writeShort(utf8.length);
            to.write(utf8);
        } else if (value instanceof byte[] bytes) {
            to.write(0xc5);
            to.writeShort(bytes.length);
            to.write(bytes);
        } else if (value instanceof List<?> items) {
            to.write(0xdc);
            to.writeShort(items.size());
            for (Object item : items) pack(to, item);
        } else {
            to.write(0xde);
            to.writeShort(map(value).size());
            for (var field : map(value).entrySet()) {
                pack(to, field.getKey());
                pack(to, field.getValue());
            }
        }
    }

    /** Reads integers as Long, text as String, bin as byte[], arrays as List and maps as Map. */
    record Reader(ByteBuffer bytes) {
        Reader(byte[] bytes) { this(ByteBuffer.wrap(bytes)); }

        Object value() {
            int k = bytes.get() & 0xff;
            if (k < 0x80) return (long) k;
            if (k < 0x90) return fields(k & 15);
            if (k < 0xa0) return items(k & 15);
            if (k < 0xc0) return text(k & 31);
            if (k >= 0xe0) return (long) (byte) k;
            return switch (k) {
                case 0xc0 -> null;
                case 0xc2, 0xc3 -> k == 0xc3;
                case 0xc4, 0xc5, 0xc6 -> taken((int) number(1 << (k - 0xc4)));
                case 0xcc, 0xcd, 0xce, 0xcf -> number(1 << (k - 0xcc));
                case 0xd0, 0xd1, 0xd2, 0xd3 -> {
                    int unused = 64 - (8 << (k - 0xd0));
                    yield number(1 << (k - 0xd0)) << unused >> unused;
                }
                case 0xd9, 0xda, 0xdb -> text((int) number(1 << (k - 0xd9)));
                case 0xdc, 0xdd -> items((int) number(2 << (k - 0xdc)));
                case 0xde, 0xdf -> fields((int) number(2 << (k - 0xde)));
                default -> throw new IllegalStateException("no value of this protocol");
            };
        }

        long number(int size) {
            long value = 0;
            for (int at = 0; at < size; at++) value = value << 8 | bytes.get() & 0xff;
            return value;
        }

        byte[] taken(int size) {
            var part = new byte[size];
            bytes.get(part);
            return part;
        }

        String text(int size) { return new String(taken(size), StandardCharsets.UTF_8); }

        List<Object> items(int count) {
            var items = new ArrayList<>(count);
            for (int at = 0; at < count; at++) items.add(value());
            return items;
        }

        Map<String, Object> fields(int count) {
            var fields = new HashMap<String, Object>();
            for (int at = 0; at < count; at++) fields.put((String) value(), value());
            return fields;
        }
    }
}
