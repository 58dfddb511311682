import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import org.apache.kafka.common.message.KRaftVersionRecordJsonConverter;
import org.apache.kafka.common.message.LeaderChangeMessageJsonConverter;
import org.apache.kafka.common.message.SnapshotFooterRecordJsonConverter;
import org.apache.kafka.common.message.SnapshotHeaderRecordJsonConverter;
import org.apache.kafka.common.message.VotersRecordJsonConverter;
import org.apache.kafka.common.metadata.MetadataJsonConverters;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.MessageUtil;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.metadata.MetadataRecordSerde;
import org.apache.kafka.server.common.ApiMessageAndVersion;

/** Reads records as JSON lines, and adds to each the bytes that Kafka's own classes write, and what they read from these. */
public class Vectors {
    public static void main(String[] args) throws Exception {
        ObjectMapper mapper = new ObjectMapper();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            ObjectNode record = (ObjectNode) mapper.readTree(line);
            short version = (short) record.get("version").asInt();
            short number = (short) record.get("number").asInt();
            byte[] bytes = record.get("is_control").asBoolean()
                ? control(number, version, record.get("fields"))
                : data(number, version, record);
            record.put("bytes", HexFormat.of().formatHex(bytes));
            System.out.println(mapper.writeValueAsString(record));
        }
    }

    private static byte[] data(short number, short version, ObjectNode record) {
        ApiMessage message = MetadataJsonConverters.readJson(record.get("fields"), number, version);
        ApiMessageAndVersion versioned = new ApiMessageAndVersion(message, version);
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ByteBuffer buffer = ByteBuffer.allocate(MetadataRecordSerde.INSTANCE.recordSize(versioned, cache));
        MetadataRecordSerde.INSTANCE.write(versioned, cache, new ByteBufferAccessor(buffer));
        buffer.flip();
        ApiMessageAndVersion read = MetadataRecordSerde.INSTANCE.read(new ByteBufferAccessor(buffer.duplicate()), buffer.limit());
        record.set("shown", MetadataJsonConverters.writeJson(read.message(), version));
        return buffer.array();
    }

    private static byte[] control(short number, short version, JsonNode fields) {
        ApiMessage message = switch (number) {
            case 2 -> LeaderChangeMessageJsonConverter.read(fields, version);
            case 3 -> SnapshotHeaderRecordJsonConverter.read(fields, version);
            case 4 -> SnapshotFooterRecordJsonConverter.read(fields, version);
            case 5 -> KRaftVersionRecordJsonConverter.read(fields, version);
            case 6 -> VotersRecordJsonConverter.read(fields, version);
            default -> throw new IllegalArgumentException("control record " + number);
        };
        ByteBuffer buffer = MessageUtil.toByteBufferAccessor(message, version).buffer();
        byte[] bytes = new byte[buffer.remaining()];
        buffer.get(bytes);
        return bytes;
    }
}
