-- In which state each broker was from when to when. {initial} holds the state where the export begins; an interval
-- that lasts is counted up to the end. An interval begins where the state changes, or the process behind it: a process
-- that registers once more (it may not have heard the answer) keeps its epoch, and what it is. Behind a silence the controller
-- gives each broker a new session: where that ends without a sign of the broker, it is not known whether it served in it.
-- columns:
-- broker_id, broker_epoch, incarnation_id
--   state STRING: OFFLINE, FENCED, ONLINE or STOPPING
--   from_offset BIGINT: the record that brought it there
--   from_ts TIMESTAMP: when that was written
-- cause_code, cause_detail
--   to_offset BIGINT: the record that ended it; null while it lasts
--   to_ts TIMESTAMP: when that was written
--   duration_ms BIGINT: how long it is known to have lasted within the log, or the part of it that is looked at
--   unknown_ms BIGINT: time beside, of which the log proves nothing: no controller is known to have been there
--   clock_stepped BOOLEAN: a clock stepped within it, so that more or less time may have passed
--   lasting BOOLEAN: it lasted at the end
WITH told AS (
    SELECT
        log_offset, ts, broker_id, broker_epoch, incarnation_id, op, state, cause_code, cause_detail,
        coalesce(c.awake_ms, -1) AS awake_ms, coalesce(c.known_ms, 0) AS at_known, coalesce(c.unknown_ms, 0) AS at_unknown, coalesce(c.steps, 0) AS at_steps
    FROM {broker_changes} b LEFT JOIN {clock} c ON b.batch_base = c.batch_base
    UNION ALL
    SELECT
        log_offset, ts, broker_id, broker_epoch, incarnation_id, 'register' AS op,
        CASE
            WHEN fenced AND (in_controlled_shutdown OR cause_code IN ('SESSION_EXPIRED', 'SHUTDOWN_GRANTED', 'STOPPED_OR_SILENT'))
                THEN 'OFFLINE'
            WHEN fenced THEN 'FENCED'
            WHEN in_controlled_shutdown THEN 'STOPPING'
            ELSE 'ONLINE'
        END AS state,
        cause_code, cause_detail, -1 AS awake_ms, 0 AS at_known, 0 AS at_unknown, 0 AS at_steps
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
        lead(ts) OVER known AS to_ts,
        lead(CASE
            WHEN awake_ms BETWEEN 0 AND 20000 AND (
                op = 'register' OR coalesce(cause_code, 'STOPPED_OR_SILENT') IN ('SESSION_EXPIRED', 'STOPPED_OR_SILENT')
            ) THEN awake_ms ELSE 0
        END) OVER known AS waking_ms,
        lead(at_known) OVER known AS to_known,
        lead(at_unknown) OVER known AS to_unknown,
        lead(at_steps) OVER known AS to_steps
    FROM entered
    WINDOW known AS (PARTITION BY broker_id ORDER BY log_offset)
)
SELECT
    broker_id, broker_epoch, incarnation_id, state,
    log_offset AS from_offset, ts AS from_ts, cause_code, cause_detail,
    to_offset, to_ts,
    coalesce(to_known, {end_known_ms}) - at_known - not_seen_ms AS duration_ms,
    coalesce(to_unknown, {end_unknown_ms}) - at_unknown + not_seen_ms AS unknown_ms,
    coalesce(to_steps, {end_steps}) > at_steps AS clock_stepped,
    to_offset IS NULL AS lasting
FROM (
    SELECT
        *,
        CASE WHEN state IN ('ONLINE', 'STOPPING') AND to_unknown > at_unknown AND waking_ms > 0
            THEN least(waking_ms, to_known - at_known) ELSE 0 END AS not_seen_ms
    FROM followed
)
ORDER BY log_offset
