-- Each change of a client's quota, with its value before, and who asked for it. {records} holds the state before
-- {from_offset} and all records from there on.
-- columns:
-- log_offset, batch_base, ts, controller_epoch, controller_id, actor, request_id, operation, cause_code, cause_detail
--   op STRING: set, or unset
-- quota_entity, quota_key
--   quota DOUBLE: the value; null: the quota was removed
--   prev_quota DOUBLE: the value before; null: there was none
--   prev_offset BIGINT: the record that gave it the value before
--   prev_ts TIMESTAMP: when that was
WITH told AS (
    SELECT *, CASE WHEN NOT quota_removed THEN CAST(quota_value AS DOUBLE) END AS quota
    FROM {records}
    WHERE type = 14
),
compared AS (
    SELECT
        *,
        lag(quota) OVER known AS prev_quota,
        lag(CASE WHEN NOT quota_removed THEN log_offset END) OVER known AS prev_offset,
        lag(CASE WHEN NOT quota_removed THEN ts END) OVER known AS prev_ts
    FROM told
    WINDOW known AS (PARTITION BY quota_entity, quota_key ORDER BY log_offset)
)
SELECT
    log_offset, batch_base, ts, controller_epoch, controller_id, actor, request_id, operation, cause_code, cause_detail,
    CASE WHEN quota_removed THEN 'unset' ELSE 'set' END AS op,
    quota_entity, quota_key, quota, prev_quota,
    CASE WHEN prev_offset >= 0 THEN prev_offset END AS prev_offset, prev_ts
FROM compared
WHERE log_offset >= {from_offset}
ORDER BY log_offset
