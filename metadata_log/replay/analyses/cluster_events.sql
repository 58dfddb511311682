-- What concerns the whole cluster: finalized levels of features (0: removed), and blocks of producer ids.
-- columns:
-- log_offset, ts, type_name, feature_name, feature_level, broker_id, next_producer_id, actor, request_id, operation
SELECT log_offset, ts, type_name, feature_name, feature_level, broker_id, next_producer_id, actor, request_id, operation
FROM {records}
WHERE type IN (12, 15)
ORDER BY log_offset
