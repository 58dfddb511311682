-- Each delegation token that was issued, renewed or removed, and who asked for it. {records} holds the state before
-- {from_offset} and all records from there on.
-- columns:
-- log_offset, batch_base, ts, controller_epoch, controller_id, actor, request_id, operation, cause_code, cause_detail
--   op STRING: set, also where only the time at which it ends was moved; or remove
-- token_id, token_owner, token_requester, token_renewers, token_issued_ms, token_max_ms, token_expires_ms
--   prev_expires_ms BIGINT: when it was to end before
--   prev_offset BIGINT: the record of the token before
--   prev_ts TIMESTAMP: when that was
WITH compared AS (
    SELECT
        log_offset, batch_base, ts, controller_epoch, controller_id, actor, request_id, operation, cause_code, cause_detail,
        type, token_id,
        coalesce(token_owner, lag(token_owner) OVER known) AS token_owner,
        coalesce(token_requester, lag(token_requester) OVER known) AS token_requester,
        coalesce(token_renewers, lag(token_renewers) OVER known) AS token_renewers,
        coalesce(token_issued_ms, lag(token_issued_ms) OVER known) AS token_issued_ms,
        coalesce(token_max_ms, lag(token_max_ms) OVER known) AS token_max_ms,
        token_expires_ms,
        lag(token_expires_ms) OVER known AS prev_expires_ms,
        lag(CASE WHEN type = 10 THEN log_offset END) OVER known AS prev_offset,
        lag(CASE WHEN type = 10 THEN ts END) OVER known AS prev_ts
    FROM {records}
    WHERE type IN (10, 26)
    WINDOW known AS (PARTITION BY token_id ORDER BY log_offset)
)
SELECT
    log_offset, batch_base, ts, controller_epoch, controller_id, actor, request_id, operation, cause_code, cause_detail,
    CASE type WHEN 10 THEN 'set' ELSE 'remove' END AS op,
    token_id, token_owner, token_requester, token_renewers, token_issued_ms, token_max_ms, token_expires_ms,
    prev_expires_ms,
    CASE WHEN prev_offset >= 0 THEN prev_offset END AS prev_offset, prev_ts
FROM compared
WHERE log_offset >= {from_offset}
ORDER BY log_offset
