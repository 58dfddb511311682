-- Topics created and removed, and who asked for it.
SELECT log_offset, ts, type_name, topic_id, topic_name, actor, request_id, operation
FROM {records}
WHERE type IN (2, 9)
ORDER BY log_offset
