-- Each change of a feature's finalized level, with the level before. {records} holds the state before {from_offset} and all
-- records from there on.
-- columns:
-- log_offset, batch_base, ts, controller_epoch, controller_id, actor, request_id, operation, cause_code, cause_detail
--   op STRING: set, or remove (level 0)
-- feature_name, feature_level
--   prev_level INT: its level before; 0: none
--   prev_offset BIGINT: the record that gave it the level before
--   prev_ts TIMESTAMP: when that was
WITH compared AS (
    SELECT
        *,
        lag(feature_level) OVER known AS prev_level,
        lag(CASE WHEN feature_level <> 0 THEN log_offset END) OVER known AS prev_offset,
        lag(CASE WHEN feature_level <> 0 THEN ts END) OVER known AS prev_ts
    FROM {records}
    WHERE type = 12
    WINDOW known AS (PARTITION BY feature_name ORDER BY log_offset)
)
SELECT
    log_offset, batch_base, ts, controller_epoch, controller_id, actor, request_id, operation, cause_code, cause_detail,
    CASE feature_level WHEN 0 THEN 'remove' ELSE 'set' END AS op,
    feature_name, feature_level, coalesce(prev_level, 0) AS prev_level,
    CASE WHEN prev_offset >= 0 THEN prev_offset END AS prev_offset, prev_ts
FROM compared
WHERE log_offset >= {from_offset}
ORDER BY log_offset
