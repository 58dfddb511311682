import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import org.apache.kafka.common.metadata.MetadataJsonConverters;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.MessageUtil;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.metadata.MetadataRecordSerde;
import org.apache.kafka.server.common.ApiMessageAndVersion;

/** Reads records and messages as JSON lines, and adds to each the bytes that Kafka's own classes write. */
public class Vectors {
    public static void main(String[] args) throws Exception {
        ObjectMapper mapper = new ObjectMapper();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            ObjectNode record = (ObjectNode) mapper.readTree(line);
            short version = (short) record.get("version").asInt();
            byte[] bytes = record.get("kind").asText().equals("data")
                ? data((short) record.get("number").asInt(), version, record)
                : message(record.get("class").asText(), version, record.get("fields"));
            record.put("bytes", HexFormat.of().formatHex(bytes));
            System.out.println(mapper.writeValueAsString(record));
        }
    }

    /** The value of a record in a data batch; also what Kafka reads from it, as its converter to JSON shows that. */
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

    /** Any other message, by the name of its class. */
    private static byte[] message(String name, short version, JsonNode fields) throws Exception {
        Class<?> converter = Class.forName("org.apache.kafka.common.message." + name + "JsonConverter");
        ApiMessage message = (ApiMessage) converter.getMethod("read", JsonNode.class, short.class).invoke(null, fields, version);
        ByteBuffer buffer = MessageUtil.toByteBufferAccessor(message, version).buffer();
        byte[] bytes = new byte[buffer.remaining()];
        buffer.get(bytes);
        return bytes;
    }
}
