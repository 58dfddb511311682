package differential;

import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.OptionalLong;
import java.util.concurrent.CompletableFuture;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.errors.UnsupportedVersionException;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.raft.Batch;
import org.apache.kafka.raft.LeaderAndEpoch;
import org.apache.kafka.raft.RaftClient;
import org.apache.kafka.raft.internals.MemoryBatchReader;
import org.apache.kafka.server.common.ApiMessageAndVersion;
import org.apache.kafka.server.common.KRaftVersion;
import org.apache.kafka.server.common.OffsetAndEpoch;
import org.apache.kafka.snapshot.SnapshotWriter;

/**
 * A Raft quorum of one that commits at once. Offset 0 stands for the LeaderChange record that a
 * real quorum writes first, so the controller's own records begin at offset 1.
 */
final class MemoryRaft implements RaftClient<ApiMessageAndVersion> {
    /** A batch as the controller appended it. */
    record Appended(long baseOffset, long atMs, List<ApiMessageAndVersion> records) { }

    private final int nodeId;
    private final VirtualTime time;
    private final List<Appended> log = new ArrayList<>();
    private final List<Appended> prepared = new ArrayList<>();
    private Listener<ApiMessageAndVersion> listener;
    private int epoch = 1;
    private long endOffset = 1;
    private int resignations = 0;

    MemoryRaft(int nodeId, VirtualTime time) {
        this.nodeId = nodeId;
        this.time = time;
    }

    /** The batches appended so far, from the given one on. */
    synchronized List<Appended> since(int index) {
        return new ArrayList<>(log.subList(index, log.size()));
    }

    synchronized int batches() {
        return log.size();
    }

    synchronized int resignations() {
        return resignations;
    }

    @Override
    public synchronized void register(Listener<ApiMessageAndVersion> listener) {
        this.listener = listener;
        listener.handleLeaderChange(leaderAndEpoch());
    }

    @Override
    public synchronized long prepareAppend(int epoch, List<ApiMessageAndVersion> records) {
        if (epoch != this.epoch) throw new IllegalStateException("epoch " + epoch + ", expected " + this.epoch);
        prepared.add(new Appended(endOffset, time.sinceStartMs(), new ArrayList<>(records)));
        endOffset += records.size();
        return endOffset - 1;
    }

    @Override
    public synchronized void schedulePreparedAppend() {
        for (Appended batch : prepared) {
            log.add(batch);
            listener.handleCommit(MemoryBatchReader.of(
                List.of(Batch.data(batch.baseOffset(), epoch, time.milliseconds(), 1, batch.records())),
                reader -> { }));
        }
        prepared.clear();
    }

    /** The controller gave up leadership after a fault: it is elected again at once, in the next epoch. */
    @Override
    public synchronized void resign(int epoch) {
        resignations++;
        if (!prepared.isEmpty()) {
            endOffset = prepared.get(0).baseOffset();
            prepared.clear();
        }
        this.epoch = epoch + 1;
        endOffset++;
        listener.handleLeaderChange(leaderAndEpoch());
    }

    @Override
    public synchronized long logEndOffset() {
        return endOffset;
    }

    @Override
    public synchronized LeaderAndEpoch leaderAndEpoch() {
        return new LeaderAndEpoch(OptionalInt.of(nodeId), epoch);
    }

    @Override
    public OptionalLong highWatermark() {
        return OptionalLong.of(logEndOffset());
    }

    @Override
    public OptionalInt nodeId() {
        return OptionalInt.of(nodeId);
    }

    @Override
    public KRaftVersion kraftVersion() {
        return KRaftVersion.KRAFT_VERSION_0;
    }

    @Override
    public void upgradeKRaftVersion(int epoch, KRaftVersion version, boolean validateOnly) {
        throw new UnsupportedVersionException("kraft.version is fixed in this program");
    }

    @Override
    public Optional<Node> voterNode(int id, ListenerName listenerName) {
        return Optional.empty();
    }

    @Override
    public void unregister(Listener<ApiMessageAndVersion> listener) {
    }

    @Override
    public CompletableFuture<Void> shutdown(int timeoutMs) {
        return CompletableFuture.completedFuture(null);
    }

    @Override
    public Optional<SnapshotWriter<ApiMessageAndVersion>> createSnapshot(OffsetAndEpoch id, long lastContainedLogTime) {
        return Optional.empty();
    }

    @Override
    public Optional<OffsetAndEpoch> latestSnapshotId() {
        return Optional.empty();
    }

    @Override
    public void close() {
    }
}
