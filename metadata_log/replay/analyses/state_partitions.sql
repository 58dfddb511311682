-- The partitions that live. A field is what the newest record that told it said; the leader epoch counts the
-- changes that named a leader, the partition epoch counts all of them. `log_offset` is that of the last change.
WITH removed AS (
    SELECT topic_id, max(log_offset) AS removed_at FROM {records} WHERE type = 9 GROUP BY topic_id
),
told AS (
    SELECT p.*
    FROM {records} p LEFT JOIN removed r ON p.topic_id = r.topic_id
    WHERE p.type IN (3, 5) AND (r.removed_at IS NULL OR p.log_offset > r.removed_at)
)
SELECT
    3 AS type,
    'Partition' AS type_name,
    max(log_offset) AS log_offset,
    max_by(ts, log_offset) AS ts,
    topic_id,
    max(topic_name) AS topic_name,
    max(topic_seq) AS topic_seq,
    partition,
    max_by(leader, CASE WHEN leader IS NOT NULL THEN log_offset END) AS leader,
    CAST(sum(CASE WHEN type = 3 THEN leader_epoch WHEN leader IS NULL THEN 0 ELSE 1 END) AS INT) AS leader_epoch,
    CAST(sum(CASE WHEN type = 3 THEN partition_epoch ELSE 1 END) AS INT) AS partition_epoch,
    max_by(leader_recovery_state, CASE WHEN leader_recovery_state IS NOT NULL THEN log_offset END)
        AS leader_recovery_state,
    max_by(replicas, CASE WHEN replicas IS NOT NULL THEN log_offset END) AS replicas,
    max_by(isr, CASE WHEN isr IS NOT NULL THEN log_offset END) AS isr,
    max_by(adding_replicas, CASE WHEN adding_replicas IS NOT NULL THEN log_offset END) AS adding_replicas,
    max_by(removing_replicas, CASE WHEN removing_replicas IS NOT NULL THEN log_offset END) AS removing_replicas,
    max_by(eligible_leader_replicas, CASE WHEN eligible_leader_replicas IS NOT NULL THEN log_offset END)
        AS eligible_leader_replicas,
    max_by(last_known_elr, CASE WHEN last_known_elr IS NOT NULL THEN log_offset END) AS last_known_elr,
    max_by(directories, CASE WHEN directories IS NOT NULL THEN log_offset END) AS directories
FROM told
GROUP BY topic_id, partition
