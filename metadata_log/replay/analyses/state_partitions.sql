-- The partitions that live. A field is what the newest record that told it said; the leader epoch counts the
-- changes that named a leader, the partition epoch counts all of them. `log_offset` is that of the last change.
-- {heads} is what partition_heads says of {records}.
WITH tellers AS (
    SELECT DISTINCT explode(array(
        replicas_at, isr_at, adding_replicas_at, removing_replicas_at,
        eligible_leader_replicas_at, last_known_elr_at, directories_at
    )) AS told_at
    FROM {heads}
),
lists AS (
    -- The hint is for Spark, which takes the records for the smaller side by the size of their compressed files.
    SELECT /*+ BROADCAST(tellers) */
        topic_id,
        partition,
        max(topic_name) AS topic_name,
        max_by(replicas, CASE WHEN replicas IS NOT NULL THEN log_offset END) AS replicas,
        max_by(isr, CASE WHEN isr IS NOT NULL THEN log_offset END) AS isr,
        max_by(adding_replicas, CASE WHEN adding_replicas IS NOT NULL THEN log_offset END) AS adding_replicas,
        max_by(removing_replicas, CASE WHEN removing_replicas IS NOT NULL THEN log_offset END)
            AS removing_replicas,
        max_by(eligible_leader_replicas, CASE WHEN eligible_leader_replicas IS NOT NULL THEN log_offset END)
            AS eligible_leader_replicas,
        max_by(last_known_elr, CASE WHEN last_known_elr IS NOT NULL THEN log_offset END) AS last_known_elr,
        max_by(directories, CASE WHEN directories IS NOT NULL THEN log_offset END) AS directories
    FROM {records} JOIN tellers ON log_offset = told_at
    WHERE type IN (3, 5)
    GROUP BY topic_id, partition
)
SELECT
    3 AS type,
    'Partition' AS type_name,
    h.log_offset, h.ts, h.topic_id, l.topic_name, h.topic_seq, h.partition,
    h.leader, h.leader_epoch, h.partition_epoch, h.leader_recovery_state,
    l.replicas, l.isr, l.adding_replicas, l.removing_replicas,
    l.eligible_leader_replicas, l.last_known_elr, l.directories
FROM {heads} h JOIN lists l ON h.topic_id = l.topic_id AND h.partition = l.partition
