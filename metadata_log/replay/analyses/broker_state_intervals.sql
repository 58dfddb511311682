-- In which state each broker was from when to when. {initial} holds the state where the export begins; an interval
-- that lasts is counted up to {end_ms}.
WITH entered AS (
    SELECT log_offset, ts, broker_id, broker_epoch, incarnation_id, state, cause_code, cause_detail
    FROM {broker_changes}
    WHERE state <> prev_state OR op <> 'change'
    UNION ALL
    SELECT
        log_offset, ts, broker_id, broker_epoch, incarnation_id,
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
    greatest(0, coalesce(unix_millis(to_ts), {end_ms}) - unix_millis(ts)) AS duration_ms,
    to_offset IS NULL AS lasting
FROM followed
ORDER BY log_offset
