-- In which state each broker was from when to when. {initial} holds the state where the export begins; an interval
-- that lasts is counted up to {end_ms}. An interval begins where the state changes, or the process behind it: a process
-- that registers once more (it may not have heard the answer) keeps its epoch, and what it is.
-- columns:
-- broker_id, broker_epoch, incarnation_id
--   state STRING: OFFLINE, FENCED, ONLINE or STOPPING
--   from_offset BIGINT: the record that brought it there
--   from_ts TIMESTAMP: when that was written
-- cause_code, cause_detail
--   to_offset BIGINT: the record that ended it; null while it lasts
--   to_ts TIMESTAMP: when that was written
--   duration_ms BIGINT: how long it lasted within the log, or the part of it that is looked at
--   lasting BOOLEAN: it lasted at the end
WITH told AS (
    SELECT log_offset, ts, broker_id, broker_epoch, incarnation_id, op, state, cause_code, cause_detail
    FROM {broker_changes}
    UNION ALL
    SELECT
        log_offset, ts, broker_id, broker_epoch, incarnation_id, 'register' AS op,
        CASE
            WHEN fenced AND (in_controlled_shutdown OR cause_code IN ('SESSION_EXPIRED', 'SHUTDOWN_GRANTED'))
                THEN 'OFFLINE'
            WHEN fenced THEN 'FENCED'
            WHEN in_controlled_shutdown THEN 'STOPPING'
            ELSE 'ONLINE'
        END AS state,
        cause_code, cause_detail
    FROM {initial}
    WHERE type = 0
),
compared AS (
    SELECT *, lag(state) OVER known AS prev_state, lag(broker_epoch) OVER known AS prev_epoch
    FROM told
    WINDOW known AS (PARTITION BY broker_id ORDER BY log_offset)
),
entered AS (
    SELECT *
    FROM compared
    WHERE prev_epoch IS NULL OR state <> prev_state OR broker_epoch <> prev_epoch OR op = 'unregister'
),
followed AS (
    SELECT
        *,
        lead(log_offset) OVER known AS to_offset,
        lead(ts) OVER known AS to_ts
    FROM entered
    WINDOW known AS (PARTITION BY broker_id ORDER BY log_offset)
)
SELECT
    broker_id, broker_epoch, incarnation_id, state,
    log_offset AS from_offset, ts AS from_ts, cause_code, cause_detail,
    to_offset, to_ts,
    greatest(0, coalesce(unix_millis(to_ts), {end_ms}) - greatest(unix_millis(ts), {from_ms})) AS duration_ms,
    to_offset IS NULL AS lasting
FROM followed
ORDER BY log_offset
