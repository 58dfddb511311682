-- The partitions that live, without their lists: for each list only the offset of the newest record that told it.
-- {others} are the records that are not about partitions. All of this is of fixed width, which Spark aggregates by hash; with a list among it, it would sort every record.
SELECT /*+ BROADCAST(r) */
    p.topic_id,
    p.partition,
    max(p.log_offset) AS log_offset,
    max_by(p.ts, p.log_offset) AS ts,
    max(p.topic_seq) AS topic_seq,
    max_by(p.leader, CASE WHEN p.leader IS NOT NULL THEN p.log_offset END) AS leader,
    CAST(sum(CASE WHEN p.type = 3 THEN p.leader_epoch WHEN p.leader IS NULL THEN 0 ELSE 1 END) AS INT)
        AS leader_epoch,
    CAST(sum(CASE WHEN p.type = 3 THEN p.partition_epoch ELSE 1 END) AS INT) AS partition_epoch,
    max_by(p.leader_recovery_state, CASE WHEN p.leader_recovery_state IS NOT NULL THEN p.log_offset END)
        AS leader_recovery_state,
    max(CASE WHEN p.replicas IS NOT NULL THEN p.log_offset END) AS replicas_at,
    max(CASE WHEN p.isr IS NOT NULL THEN p.log_offset END) AS isr_at,
    max(CASE WHEN p.adding_replicas IS NOT NULL THEN p.log_offset END) AS adding_replicas_at,
    max(CASE WHEN p.removing_replicas IS NOT NULL THEN p.log_offset END) AS removing_replicas_at,
    max(CASE WHEN p.eligible_leader_replicas IS NOT NULL THEN p.log_offset END) AS eligible_leader_replicas_at,
    max(CASE WHEN p.last_known_elr IS NOT NULL THEN p.log_offset END) AS last_known_elr_at,
    max(CASE WHEN p.directories IS NOT NULL THEN p.log_offset END) AS directories_at
FROM {records} p
LEFT JOIN (
    SELECT topic_id, max(log_offset) AS removed_at FROM {others} WHERE type = 9 GROUP BY topic_id
) r ON p.topic_id = r.topic_id
WHERE p.type IN (3, 5) AND (r.removed_at IS NULL OR p.log_offset > r.removed_at)
GROUP BY p.topic_id, p.partition
