-- Each change of a broker's state, with the state before. {records} holds the state before {from_offset} and all
-- records from there on. OFFLINE: never registered, removed, stopped, or silent for a whole session. FENCED: registered
-- but not serving. ONLINE: serving. STOPPING: asked to stop, its leaderships moving away.
-- columns:
-- log_offset, ts, controller_epoch, controller_id, broker_id, broker_epoch, incarnation_id, rack
--   op STRING: register, unregister or change
--   state STRING: the broker's state from then on: OFFLINE, FENCED, ONLINE or STOPPING
--   prev_state STRING: its state before
--   prev_offset BIGINT: the change before
--   prev_ts TIMESTAMP: when that was
-- cause_code, cause_detail
WITH told AS (
    SELECT
        *,
        sum(CASE WHEN type = 17 THEN 0 ELSE 1 END)
            OVER (PARTITION BY broker_id ORDER BY log_offset ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS life
    FROM {records}
    WHERE type IN (0, 1, 17)
),
so_far AS (
    SELECT
        log_offset, ts, controller_epoch, controller_id, cause_code, cause_detail, type, broker_id, broker_epoch,
        last_value(incarnation_id) IGNORE NULLS OVER told_before AS incarnation_id,
        last_value(rack) IGNORE NULLS OVER told_before AS rack,
        last_value(fenced) IGNORE NULLS OVER told_before AS is_fenced,
        last_value(in_controlled_shutdown) IGNORE NULLS OVER told_before AS is_stopping,
        last_value(CASE WHEN fenced THEN coalesce(cause_code, '') END) IGNORE NULLS OVER told_before AS fenced_for
    FROM told
    WINDOW told_before AS (
        PARTITION BY broker_id, life ORDER BY log_offset ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    )
),
stated AS (
    SELECT
        *,
        CASE
            WHEN type = 1 THEN 'OFFLINE'
            WHEN is_fenced AND (is_stopping OR fenced_for IN ('SESSION_EXPIRED', 'SHUTDOWN_GRANTED')) THEN 'OFFLINE'
            WHEN is_fenced THEN 'FENCED'
            WHEN is_stopping THEN 'STOPPING'
            ELSE 'ONLINE'
        END AS state
    FROM so_far
),
compared AS (
    SELECT
        *,
        coalesce(lag(state) OVER known, 'OFFLINE') AS prev_state,
        -- A broker that was removed has no before: it is as if it had never been.
        lag(CASE WHEN type <> 1 THEN log_offset END) OVER known AS prev_offset,
        lag(CASE WHEN type <> 1 THEN ts END) OVER known AS prev_ts
    FROM stated
    WINDOW known AS (PARTITION BY broker_id ORDER BY log_offset)
)
SELECT
    log_offset, ts, controller_epoch, controller_id, broker_id, broker_epoch, incarnation_id, rack,
    CASE type WHEN 0 THEN 'register' WHEN 1 THEN 'unregister' ELSE 'change' END AS op,
    state, prev_state,
    CASE WHEN prev_offset >= 0 THEN prev_offset END AS prev_offset,
    prev_ts, cause_code, cause_detail
FROM compared
WHERE log_offset >= {from_offset}
ORDER BY log_offset
