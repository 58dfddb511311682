-- Each change of a setting, with its value before, and who asked for it. {records} holds the state before {from_offset} and
-- all records from there on. A topic that is deleted takes its settings along; one that is restored gets them back.
-- columns:
-- log_offset, batch_base, ts, controller_epoch, controller_id, actor, request_id, operation, cause_code, cause_detail
--   op STRING: set, unset, or delete (with its topic)
-- resource_type, resource_name, config_name, config_value
--   prev_value STRING: the value before, a secret as its mask; null: it had none
--   prev_offset BIGINT: the record that gave it the value before
--   prev_ts TIMESTAMP: when that was
WITH told AS (
    SELECT
        log_offset, batch_base, ts, controller_epoch, controller_id, actor, request_id, operation, cause_code, cause_detail,
        CASE WHEN config_value IS NULL THEN 'unset' ELSE 'set' END AS op,
        resource_type, resource_name, config_name, config_value
    FROM {records}
    WHERE type = 4
    UNION ALL
    SELECT
        t.log_offset, t.batch_base, t.ts, t.controller_epoch, t.controller_id, t.actor, t.request_id, t.operation,
        t.cause_code, t.cause_detail,
        'delete', 2, s.resource_name, s.config_name, NULL
    FROM {topic_changes} t
    JOIN (SELECT DISTINCT resource_name, config_name FROM {records} WHERE type = 4 AND resource_type = 2) s
        ON t.topic_name = s.resource_name
    WHERE t.prev_state = 'LIVE'
),
compared AS (
    SELECT
        *,
        lag(config_value) OVER known AS prev_value,
        lag(CASE WHEN config_value IS NOT NULL THEN log_offset END) OVER known AS prev_offset,
        lag(CASE WHEN config_value IS NOT NULL THEN ts END) OVER known AS prev_ts
    FROM told
    WINDOW known AS (PARTITION BY resource_type, resource_name, config_name ORDER BY log_offset)
)
SELECT
    log_offset, batch_base, ts, controller_epoch, controller_id, actor, request_id, operation, cause_code, cause_detail, op,
    resource_type, resource_name, config_name, config_value, prev_value,
    CASE WHEN prev_offset >= 0 THEN prev_offset END AS prev_offset, prev_ts
FROM compared
WHERE log_offset >= {from_offset} AND (op <> 'delete' OR prev_value IS NOT NULL)
ORDER BY log_offset, config_name
