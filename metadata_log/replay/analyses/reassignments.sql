-- Reassignments: when they began, were changed, ended or were cancelled, and why. Flag 16: under way.
WITH seen AS (
    SELECT
        *,
        flags % 32 >= 16 AS is_under_way,
        coalesce(prev_flags, 0) % 32 >= 16 AS was_under_way,
        coalesce(cause_code, '') = 'REASSIGNMENT_REQUESTED' AS is_requested
    FROM {partition_changes}
    WHERE op = 'change' AND changed >= 4
)
SELECT
    log_offset, ts, topic_id, topic_name, partition, coalesce(cause_code, '') AS cause_code,
    CASE
        WHEN is_under_way AND NOT was_under_way THEN 'begun'
        WHEN is_under_way THEN 'changed'
        WHEN was_under_way AND is_requested THEN 'cancelled'
        WHEN was_under_way THEN 'completed'
        ELSE 'at once'
    END AS what,
    replicas, adding_replicas, removing_replicas
FROM seen
WHERE is_under_way OR was_under_way OR changed % 8 >= 4
ORDER BY log_offset, topic_id, partition
