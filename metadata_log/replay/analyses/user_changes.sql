-- Each change of a user's SCRAM credential, and who asked for it. {records} holds the state before {from_offset} and all
-- records from there on.
-- columns:
-- log_offset, batch_base, ts, controller_epoch, controller_id, actor, request_id, operation, cause_code, cause_detail
--   op STRING: set, or remove
-- user_name, scram_mechanism, scram_iterations
--   prev_iterations INT: the iterations of the credential before; null: there was none
--   prev_offset BIGINT: the record of the credential before
--   prev_ts TIMESTAMP: when that was
WITH compared AS (
    SELECT
        *,
        lag(scram_iterations) OVER known AS prev_iterations,
        lag(CASE WHEN type = 11 THEN log_offset END) OVER known AS prev_offset,
        lag(CASE WHEN type = 11 THEN ts END) OVER known AS prev_ts
    FROM {records}
    WHERE type IN (11, 22)
    WINDOW known AS (PARTITION BY user_name, scram_mechanism ORDER BY log_offset)
)
SELECT
    log_offset, batch_base, ts, controller_epoch, controller_id, actor, request_id, operation, cause_code, cause_detail,
    CASE type WHEN 11 THEN 'set' ELSE 'remove' END AS op,
    user_name, scram_mechanism, scram_iterations, prev_iterations,
    CASE WHEN prev_offset >= 0 THEN prev_offset END AS prev_offset, prev_ts
FROM compared
WHERE log_offset >= {from_offset}
ORDER BY log_offset
