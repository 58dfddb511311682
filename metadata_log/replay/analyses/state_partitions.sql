-- The partitions that live. A field is what the newest record that told it said; the leader epoch counts the
-- changes that named a leader, the partition epoch counts all of them. `log_offset` is that of the last change;
-- the deletion of a topic that can be restored, and its restoration, change all its partitions.
--
-- Written for what most records are, changes of leader and isr. All rows are aggregated only to what has a fixed
-- width, which Spark does by hash (with a list among it, it would sort them all); the newest isr is then fetched
-- by its offset, and the other lists come from the few records that tell any. The hints are for Spark too, which
-- takes the records for the smaller side by the size of their compressed files.
-- {others} are the records that are not about partitions.
-- columns:
-- type, type_name, log_offset, ts, topic_id, topic_name, topic_seq, partition, leader, leader_epoch, partition_epoch
-- leader_recovery_state, replicas, isr, adding_replicas, removing_replicas, eligible_leader_replicas, last_known_elr
-- directories
WITH removed AS (
    SELECT topic_id, max(log_offset) AS removed_at FROM {others} WHERE type = 9 GROUP BY topic_id
),
deleted AS (
    SELECT
        topic_id,
        max(CASE WHEN type = 1006 THEN log_offset END) AS deleted_at,
        max(log_offset) AS touched_at,
        max_by(ts, log_offset) AS ts
    FROM {others}
    WHERE type IN (1006, 1007)
    GROUP BY topic_id
),
told AS (
    SELECT /*+ BROADCAST(r) */ p.*
    FROM {records} p LEFT JOIN removed r ON p.topic_id = r.topic_id
    WHERE p.type IN (3, 5) AND (r.removed_at IS NULL OR p.log_offset > r.removed_at)
),
newest AS (
    SELECT
        topic_id,
        partition,
        max(log_offset) AS log_offset,
        max_by(ts, log_offset) AS ts,
        max_by(leader, CASE WHEN leader IS NOT NULL THEN log_offset END) AS leader,
        max(CASE WHEN leader IS NOT NULL THEN log_offset END) AS led_at,
        CAST(sum(CASE WHEN type = 3 THEN leader_epoch WHEN leader IS NULL THEN 0 ELSE 1 END) AS INT)
            AS leader_epoch,
        CAST(sum(CASE WHEN type = 3 THEN partition_epoch ELSE 1 END) AS INT) AS partition_epoch,
        max(CASE WHEN isr IS NOT NULL THEN log_offset END) AS isr_at
    FROM told
    GROUP BY topic_id, partition
),
seldom AS (
    SELECT
        topic_id,
        partition,
        max(topic_name) AS topic_name,
        max(topic_seq) AS topic_seq,
        max_by(leader_recovery_state, CASE WHEN leader_recovery_state IS NOT NULL THEN log_offset END)
            AS leader_recovery_state,
        max_by(replicas, CASE WHEN replicas IS NOT NULL THEN log_offset END) AS replicas,
        max_by(adding_replicas, CASE WHEN adding_replicas IS NOT NULL THEN log_offset END) AS adding_replicas,
        max_by(removing_replicas, CASE WHEN removing_replicas IS NOT NULL THEN log_offset END)
            AS removing_replicas,
        max_by(eligible_leader_replicas, CASE WHEN eligible_leader_replicas IS NOT NULL THEN log_offset END)
            AS eligible_leader_replicas,
        max_by(last_known_elr, CASE WHEN last_known_elr IS NOT NULL THEN log_offset END) AS last_known_elr,
        max_by(directories, CASE WHEN directories IS NOT NULL THEN log_offset END) AS directories
    FROM told
    WHERE type = 3
        OR leader_recovery_state IS NOT NULL OR replicas IS NOT NULL
        OR adding_replicas IS NOT NULL OR removing_replicas IS NOT NULL
        OR eligible_leader_replicas IS NOT NULL OR last_known_elr IS NOT NULL OR directories IS NOT NULL
    GROUP BY topic_id, partition
)
SELECT /*+ BROADCAST(n), BROADCAST(d) */
    3 AS type,
    'Partition' AS type_name,
    greatest(n.log_offset, coalesce(d.touched_at, n.log_offset)) AS log_offset,
    CASE WHEN d.touched_at > n.log_offset THEN d.ts ELSE n.ts END AS ts,
    n.topic_id, s.topic_name, s.topic_seq, n.partition,
    -- A deletion takes the leader, without an election. In a snapshot it comes before its partitions.
    CASE WHEN d.deleted_at > n.led_at THEN -1 ELSE n.leader END AS leader, n.leader_epoch, n.partition_epoch, s.leader_recovery_state,
    s.replicas, i.isr, s.adding_replicas, s.removing_replicas,
    s.eligible_leader_replicas, s.last_known_elr, s.directories
FROM {records} i
JOIN newest n ON i.log_offset = n.isr_at AND i.topic_id = n.topic_id AND i.partition = n.partition
JOIN seldom s ON n.topic_id = s.topic_id AND n.partition = s.partition
LEFT JOIN deleted d ON n.topic_id = d.topic_id
WHERE i.type IN (3, 5)
