-- Settings that got a value, or lost it (null), and who asked for it.
SELECT
    log_offset, batch_base, ts, resource_type, resource_name, config_name, config_value, actor, request_id, operation
FROM {records}
WHERE type = 4
ORDER BY log_offset
