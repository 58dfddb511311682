package org.apache.kafka.controller;

import java.lang.reflect.Field;
import java.util.OptionalLong;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.locks.Lock;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.metadata.BrokerRegistration;
import org.apache.kafka.metadata.PartitionRegistration;

/**
 * The few package-private things of the unmodified controller that scripts look at. It lies in
 * Kafka's package for access only. Everything here is used while the event queue is idle.
 */
public final class ControllerProbe {
    private ControllerProbe() {
    }

    public static BrokerRegistration broker(QuorumController controller, int brokerId) {
        return controller.clusterControl().registration(brokerId);
    }

    public static Iterable<Integer> brokerIds(QuorumController controller) {
        return new TreeMap<>(controller.clusterControl().brokerRegistrations()).keySet();
    }

    public static OptionalLong registrationOffset(QuorumController controller, int brokerId) {
        return controller.clusterControl().registerBrokerRecordOffset(brokerId);
    }

    public static PartitionRegistration partition(QuorumController controller, Uuid topicId, int partitionId) {
        return controller.replicationControl().getPartition(topicId, partitionId);
    }

    /** True if the broker was heard from with its present epoch and has not been expired since. */
    public static boolean hasSession(QuorumController controller, int brokerId) {
        BrokerIdAndEpoch key = key(controller, brokerId);
        return key != null && tracker(controller).contactTime(key).isPresent();
    }

    /** Sets the time of the broker's last contact, if it has a session. */
    public static void setLastContact(QuorumController controller, int brokerId, long ns) {
        if (hasSession(controller, brokerId)) {
            tracker(controller).updateContactTime(key(controller, brokerId), ns);
        }
    }

    /** Runs the periodic session check now, as its timer would. */
    public static CompletableFuture<Boolean> checkSessions(QuorumController controller) {
        return controller.appendWriteEvent("maybeFenceStaleBroker", OptionalLong.empty(),
            controller.replicationControl()::maybeFenceOneStaleBroker);
    }

    /** The time at which the event queue's next deferred event falls due. */
    public static OptionalLong nextDeadline(QuorumController controller) throws ReflectiveOperationException {
        Object queue = read(controller, QuorumController.class, "queue");
        Lock lock = (Lock) read(queue, queue.getClass(), "lock");
        Object handler = read(queue, queue.getClass(), "eventHandler");
        lock.lock();
        try {
            TreeMap<?, ?> deadlines = (TreeMap<?, ?>) read(handler, handler.getClass(), "deadlineMap");
            return deadlines.isEmpty() ? OptionalLong.empty() : OptionalLong.of((Long) deadlines.firstKey());
        } finally {
            lock.unlock();
        }
    }

    /** Lets the manager of delegation tokens read this clock; of itself it reads the system's. */
    public static void setClockOfTokens(QuorumController controller, Time time) throws ReflectiveOperationException {
        Object manager = read(controller, QuorumController.class, "delegationTokenControlManager");
        Field clock = manager.getClass().getDeclaredField("time");
        clock.setAccessible(true);
        clock.set(manager, time);
    }

    private static BrokerHeartbeatTracker tracker(QuorumController controller) {
        return controller.clusterControl().heartbeatManager().tracker();
    }

    private static BrokerIdAndEpoch key(QuorumController controller, int brokerId) {
        BrokerRegistration registration = broker(controller, brokerId);
        return registration == null ? null : new BrokerIdAndEpoch(brokerId, registration.epoch());
    }

    private static Object read(Object object, Class<?> type, String name) throws ReflectiveOperationException {
        Field field = type.getDeclaredField(name);
        field.setAccessible(true);
        return field.get(object);
    }
}
