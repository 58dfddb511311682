-- The topics that live: created, and not removed since. `log_offset` is that of the creation.
WITH removed AS (
    SELECT topic_id, max(log_offset) AS removed_at FROM {records} WHERE type = 9 GROUP BY topic_id
)
SELECT t.type, t.type_name, t.log_offset, t.ts, t.topic_id, t.topic_name, t.topic_seq
FROM {records} t LEFT JOIN removed r ON t.topic_id = r.topic_id
WHERE t.type = 2 AND (r.removed_at IS NULL OR t.log_offset > r.removed_at)
