-- Each change of a broker, with the values before it and the actor. {records} holds the state before
-- {from_offset} and all records from there on. OFFLINE: never registered, removed, stopped, or silent for a whole session.
-- FENCED: registered but not serving. ONLINE: serving. STOPPING: asked to stop, its leaderships moving away.
-- columns:
-- log_offset, batch_base, ts, controller_epoch, controller_id, actor, request_id, operation, cause_code, cause_detail
--   op STRING: register, unregister or change
-- broker_id, broker_epoch, incarnation_id, rack
--   state STRING: the broker's state from then on: OFFLINE, FENCED, ONLINE or STOPPING
-- fenced, in_controlled_shutdown, endpoints, features, log_dirs, cordoned_log_dirs
--   prev_state STRING: its state before
--   prev_broker_epoch BIGINT: the offset of the registration before; null: it was not registered
--   prev_incarnation_id STRING: the process that was registered
--   prev_rack STRING: its rack before
--   prev_fenced BOOLEAN: it had not to serve
--   prev_in_controlled_shutdown BOOLEAN: it had asked to stop
--   prev_endpoints endpoints: where it listened
--   prev_features features: the levels of features that it supported
--   prev_log_dirs log_dirs: its log directories that were online
--   prev_cordoned_log_dirs cordoned_log_dirs: those that took no new replicas
--   prev_offset BIGINT: the change before
--   prev_ts TIMESTAMP: when that was
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
        log_offset, batch_base, ts, controller_epoch, controller_id, actor, request_id, operation, cause_code, cause_detail,
        type, broker_id, broker_epoch,
        last_value(incarnation_id) IGNORE NULLS OVER told_before AS incarnation_id,
        last_value(rack) IGNORE NULLS OVER told_before AS rack,
        last_value(fenced) IGNORE NULLS OVER told_before AS fenced,
        last_value(in_controlled_shutdown) IGNORE NULLS OVER told_before AS in_controlled_shutdown,
        last_value(endpoints) IGNORE NULLS OVER told_before AS endpoints,
        last_value(features) IGNORE NULLS OVER told_before AS features,
        last_value(log_dirs) IGNORE NULLS OVER told_before AS log_dirs,
        last_value(cordoned_log_dirs) IGNORE NULLS OVER told_before AS cordoned_log_dirs,
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
            WHEN fenced AND (in_controlled_shutdown OR fenced_for IN ('SESSION_EXPIRED', 'SHUTDOWN_GRANTED', 'STOPPED_OR_SILENT')) THEN 'OFFLINE'
            WHEN fenced THEN 'FENCED'
            WHEN in_controlled_shutdown THEN 'STOPPING'
            ELSE 'ONLINE'
        END AS state
    FROM so_far
),
compared AS (
    SELECT
        *,
        coalesce(lag(state) OVER known, 'OFFLINE') AS prev_state,
        -- A broker that was removed has no before: it is as if it had never been.
        lag(CASE WHEN type <> 1 THEN broker_epoch END) OVER known AS prev_broker_epoch,
        lag(incarnation_id) OVER known AS prev_incarnation_id,
        lag(rack) OVER known AS prev_rack,
        lag(fenced) OVER known AS prev_fenced,
        lag(in_controlled_shutdown) OVER known AS prev_in_controlled_shutdown,
        lag(endpoints) OVER known AS prev_endpoints,
        lag(features) OVER known AS prev_features,
        lag(log_dirs) OVER known AS prev_log_dirs,
        lag(cordoned_log_dirs) OVER known AS prev_cordoned_log_dirs,
        lag(CASE WHEN type <> 1 THEN log_offset END) OVER known AS prev_offset,
        lag(CASE WHEN type <> 1 THEN ts END) OVER known AS prev_ts
    FROM stated
    WINDOW known AS (PARTITION BY broker_id ORDER BY log_offset)
)
SELECT
    log_offset, batch_base, ts, controller_epoch, controller_id, actor, request_id, operation, cause_code, cause_detail,
    CASE type WHEN 0 THEN 'register' WHEN 1 THEN 'unregister' ELSE 'change' END AS op,
    broker_id, broker_epoch, incarnation_id, rack, state,
    fenced, in_controlled_shutdown, endpoints, features, log_dirs, cordoned_log_dirs,
    prev_state, prev_broker_epoch, prev_incarnation_id, prev_rack, prev_fenced, prev_in_controlled_shutdown,
    prev_endpoints, prev_features, prev_log_dirs, prev_cordoned_log_dirs,
    CASE WHEN prev_offset >= 0 THEN prev_offset END AS prev_offset,
    prev_ts
FROM compared
WHERE log_offset >= {from_offset}
ORDER BY log_offset
