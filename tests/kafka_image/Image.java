import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HexFormat;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.common.record.internal.ControlRecordType;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MutableRecordBatch;
import org.apache.kafka.image.MetadataDelta;
import org.apache.kafka.image.MetadataImage;
import org.apache.kafka.image.MetadataProvenance;
import org.apache.kafka.image.writer.ImageWriterOptions;
import org.apache.kafka.image.writer.RecordListWriter;
import org.apache.kafka.metadata.MetadataRecordSerde;
import org.apache.kafka.server.common.ApiMessageAndVersion;

/** Replays each file of record batches as a broker does, and prints the records of the state that it adds up to. */
public class Image {
    public static void main(String[] paths) throws Exception {
        for (String path : paths) {
            System.out.println("file " + path);
            MetadataImage image = MetadataImage.EMPTY;
            ByteBuffer data = ByteBuffer.wrap(Files.readAllBytes(Path.of(path)));
            for (MutableRecordBatch batch : MemoryRecords.readableRecords(data).batches()) {
                batch.ensureValid();
                MetadataDelta delta = new MetadataDelta.Builder().setImage(image).build();
                for (var record : batch) {
                    record.ensureValid();
                    if (batch.isControlBatch()) {
                        System.out.println("control " + ControlRecordType.parse(record.key()));
                    } else {
                        var value = new ByteBufferAccessor(record.value());
                        delta.replay(MetadataRecordSerde.INSTANCE.read(value, record.valueSize()).message());
                    }
                }
                image = delta.apply(MetadataProvenance.EMPTY);
            }
            RecordListWriter writer = new RecordListWriter();
            image.write(writer, new ImageWriterOptions.Builder(image).setEligibleLeaderReplicasEnabled(true).build());
            for (ApiMessageAndVersion record : writer.records()) {
                ObjectSerializationCache cache = new ObjectSerializationCache();
                ByteBuffer bytes = ByteBuffer.allocate(MetadataRecordSerde.INSTANCE.recordSize(record, cache));
                MetadataRecordSerde.INSTANCE.write(record, cache, new ByteBufferAccessor(bytes));
                System.out.println("state " + HexFormat.of().formatHex(bytes.array()));
            }
        }
    }
}
