-- Settings that got a value, or lost it (null), what stood there before, and who asked for it.
-- columns:
-- log_offset, batch_base, ts, resource_type, resource_name, config_name, config_value
--   prev_value STRING: the value before, as it was last written for a resource of that name
-- actor, request_id, operation
WITH told AS (
    SELECT
        log_offset, batch_base, ts, resource_type, resource_name, config_name, config_value, actor, request_id, operation,
        true AS is_new
    FROM {records}
    WHERE type = 4
    UNION ALL
    SELECT
        log_offset, batch_base, ts, resource_type, resource_name, config_name, config_value, actor, request_id, operation,
        false
    FROM {initial}
    WHERE type = 4
),
compared AS (
    SELECT
        *,
        lag(config_value) OVER (PARTITION BY resource_type, resource_name, config_name ORDER BY log_offset) AS prev_value
    FROM told
)
SELECT
    log_offset, batch_base, ts, resource_type, resource_name, config_name, config_value, prev_value,
    actor, request_id, operation
FROM compared
WHERE is_new
ORDER BY log_offset
