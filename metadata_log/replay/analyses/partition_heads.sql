-- The partitions that live, without their lists: for each list only the offset of the newest record that told it.
-- All of this is of fixed width, which Spark aggregates by hash; with a list among it, it would sort every record.
WITH removed AS (
    SELECT topic_id, max(log_offset) AS removed_at FROM {records} WHERE type = 9 GROUP BY topic_id
),
told AS (
    SELECT /*+ BROADCAST(r) */ p.*
    FROM {records} p LEFT JOIN removed r ON p.topic_id = r.topic_id
    WHERE p.type IN (3, 5) AND (r.removed_at IS NULL OR p.log_offset > r.removed_at)
)
SELECT
    topic_id,
    partition,
    max(log_offset) AS log_offset,
    max_by(ts, log_offset) AS ts,
    max(topic_seq) AS topic_seq,
    max_by(leader, CASE WHEN leader IS NOT NULL THEN log_offset END) AS leader,
    CAST(sum(CASE WHEN type = 3 THEN leader_epoch WHEN leader IS NULL THEN 0 ELSE 1 END) AS INT) AS leader_epoch,
    CAST(sum(CASE WHEN type = 3 THEN partition_epoch ELSE 1 END) AS INT) AS partition_epoch,
    max_by(leader_recovery_state, CASE WHEN leader_recovery_state IS NOT NULL THEN log_offset END)
        AS leader_recovery_state,
    max(CASE WHEN replicas IS NOT NULL THEN log_offset END) AS replicas_at,
    max(CASE WHEN isr IS NOT NULL THEN log_offset END) AS isr_at,
    max(CASE WHEN adding_replicas IS NOT NULL THEN log_offset END) AS adding_replicas_at,
    max(CASE WHEN removing_replicas IS NOT NULL THEN log_offset END) AS removing_replicas_at,
    max(CASE WHEN eligible_leader_replicas IS NOT NULL THEN log_offset END) AS eligible_leader_replicas_at,
    max(CASE WHEN last_known_elr IS NOT NULL THEN log_offset END) AS last_known_elr_at,
    max(CASE WHEN directories IS NOT NULL THEN log_offset END) AS directories_at
FROM told
GROUP BY topic_id, partition
