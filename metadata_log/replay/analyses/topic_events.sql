-- Topics created, removed, deleted for a time and restored, and who asked for it.
-- columns:
-- log_offset, ts, type_name, topic_id, topic_name, grace_ms, cause_code, actor, request_id, operation
SELECT log_offset, ts, type_name, topic_id, topic_name, grace_ms, cause_code, actor, request_id, operation
FROM {records}
WHERE type IN (2, 9, 1006, 1007)
ORDER BY log_offset
