-- The topics that live, and those that were deleted and can be restored (1006): a topic is what its newest record says.
-- `log_offset` is that of the creation, of the deletion, or of the restoration (1007): its settings come after it.
-- columns:
-- type, type_name, log_offset, ts, topic_id, topic_name, topic_seq, deleted_at_ms, grace_ms, kept_configs, counted_ms
WITH newest AS (
    SELECT *, row_number() OVER (PARTITION BY topic_id ORDER BY log_offset DESC) AS age
    FROM {records}
    WHERE type IN (2, 9, 1006, 1007)
)
SELECT
    CASE type WHEN 1007 THEN 2 ELSE type END AS type,
    CASE type WHEN 1006 THEN type_name ELSE 'Topic' END AS type_name,
    log_offset, ts, topic_id, topic_name, topic_seq, deleted_at_ms, grace_ms, kept_configs, counted_ms
FROM newest
WHERE age = 1 AND type <> 9
