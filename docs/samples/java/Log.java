import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.HashMap;
import java.util.Map;
import java.util.Set;
import java.util.zip.CRC32C;
import org.msgpack.jackson.dataformat.MessagePackFactory;

/** What the log says up to a position. A broker with messages keeps topics and partitions here, too. */
class Log {
    static final ObjectMapper MSGPACK = new ObjectMapper(new MessagePackFactory());
    static final Set<Integer> KNOWN = Set.of(0, 1, 2, 3, 4, 5, 9, 10, 11, 12, 14, 15, 17, 18, 19, 20, 22, 26, 27,
        1000, 1001, 1002, 1003, 1004, 1005, 1006, 1007, 1010, 1011);
    static final Map<Integer, Integer> NEWEST = Map.of(4, 1, 1002, 1);  // the versions of the other types are 0
    static final int HEADER_BYTES = 40, START = 0x4D51_01_00;  // the magic, format 1, no flags

    long offset = 0, lastEpoch = -1, crc = 0;  // the position: the end of the last frame, its epoch and its crc
    final Map<Integer, Long> online = new HashMap<>();  // the epoch of each broker that is not fenced
    private JsonNode snapshotHeader;

    /** Reads a snapshot, whose frames begin at 0. The position behind it is in its header. */
    static Log ofSnapshot(byte[] file) throws IOException {
        var log = new Log();
        log.apply(file, 0);
        log.offset = log.snapshotHeader.get(3).longValue();
        log.lastEpoch = log.snapshotHeader.get(4).longValue();
        log.crc = log.snapshotHeader.get(6).longValue();
        return log;
    }

    /** Applies frames from the position on, up to a damaged one, which the next poll asks for again. */
    void apply(byte[] data, int from) throws IOException {
        var frames = ByteBuffer.wrap(data).position(from);
        while (frames.remaining() >= HEADER_BYTES) {
            int at = frames.position(), start = frames.getInt(), size = frames.getInt();
            long baseOffset = frames.getLong();
            int recordCount = frames.getInt(), epoch = frames.getInt();
            frames.getLong();  // when it was appended
            long previousCrc = unsigned(frames.getInt()), wantedCrc = unsigned(frames.getInt());
            if (start != START || size < 0 || size > frames.remaining()) return;
            var sum = new CRC32C();
            sum.update(data, at, HEADER_BYTES - 4);
            sum.update(data, frames.position(), size);
            if (sum.getValue() != wantedCrc || baseOffset != offset || previousCrc != crc) return;
            for (JsonNode record : MSGPACK.readTree(data, frames.position(), size).get(1)) fold(record);
            offset = baseOffset + recordCount;
            lastEpoch = epoch;
            crc = wantedCrc;
            frames.position(frames.position() + size);
        }
    }

    /** Applies a record: its type, its version, and its fields in order. */
    private void fold(JsonNode record) {
        int type = record.get(0).intValue(), version = record.get(1).intValue();
        if (!KNOWN.contains(type) || version > NEWEST.getOrDefault(type, 0))
            throw new IllegalStateException("record type " + type + ", version " + version + ", is of a later release");
        switch (type) {
            case 0 -> setFenced(record.get(2).intValue(), record.get(4).longValue(), record.get(8));  // RegisterBroker
            case 1 -> online.remove(record.get(2).intValue());  // UnregisterBroker
            case 17 -> setFenced(record.get(2).intValue(), record.get(3).longValue(), record.get(4));  // BrokerRegistrationChange
            case 1002 -> snapshotHeader = record;
            default -> { }  // a broker without messages needs no other
        }
    }

    private void setFenced(int broker, long epoch, JsonNode fenced) {
        if (fenced.isNull()) return;  // that did not change
        if (fenced.booleanValue()) online.remove(broker);
        else online.put(broker, epoch);
    }

    private static long unsigned(int value) { return Integer.toUnsignedLong(value); }
}
