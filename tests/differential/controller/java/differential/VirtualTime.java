package differential;

import java.util.function.Supplier;
import org.apache.kafka.common.utils.Time;

/** A clock that stands still that scripts move. */
final class VirtualTime implements Time {
    /** Far from zero, so that "now minus a session timeout" is an ordinary number. */
    private static final long START_NS = 1_000_000_000_000_000L;

    private volatile long nowNs = START_NS;

    @Override
    public long milliseconds() {
        return nowNs / 1_000_000L;
    }

    @Override
    public long nanoseconds() {
        return nowNs;
    }

    void moveTo(long ns) {
        nowNs = ns;
    }

    /** Back to the full millisecond. See Cluster.metrics(). */
    void snap() {
        nowNs -= nowNs % 1_000_000L;
    }

    /** Milliseconds since the script began. */
    long sinceStartMs() {
        return (nowNs - START_NS) / 1_000_000L;
    }

    @Override
    public void sleep(long ms) {
        throw new UnsupportedOperationException("a virtual clock never makes a thread sleep");
    }

    @Override
    public void waitObject(Object obj, Supplier<Boolean> condition, long deadlineMs) {
        throw new UnsupportedOperationException("a virtual clock never makes a thread wait");
    }
}
