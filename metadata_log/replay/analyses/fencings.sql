-- Ends of service of brokers, and a verdict on what lay behind each: stopped (it asked to), removed (by an operator), disk (a
-- log directory failed), broker (its process ended: another one registered next), controller (at least two brokers and half
-- of those that served fell silent within 2 s, or the controller itself was new), network (its process lived on: it
-- was cut off, or stalled), or unknown (it has not returned).
-- columns:
-- log_offset, ts, broker_id, cause_code
--   silent_ms BIGINT: how long it had been silent, where that was the cause
--   verdict STRING: stopped, removed, disk, broker, controller, network or unknown
--   back_offset BIGINT: the record that put it into service again; null: not yet
--   back_ts TIMESTAMP: when that was written
--   duration_ms BIGINT: how long it was out of service: until it served again, or was removed from the cluster, or up to the end
--   same_process BOOLEAN: it returned as the same process; null: not yet
--   burst BIGINT: brokers that fell silent within 2 s of it, itself among them; 0 where that was not the cause
-- controller_id
WITH followed AS (
    SELECT
        *,
        min(CASE WHEN state = 'ONLINE' THEN log_offset END) OVER after AS back_offset,
        last_value(CASE WHEN state = 'ONLINE' THEN ts END) IGNORE NULLS OVER after AS back_ts,
        last_value(CASE WHEN state = 'ONLINE' THEN incarnation_id END) IGNORE NULLS OVER after AS back_incarnation,
        last_value(CASE WHEN state = 'ONLINE' OR op = 'unregister' THEN ts END) IGNORE NULLS OVER after AS over_ts,
        lag(incarnation_id) OVER (PARTITION BY broker_id ORDER BY log_offset) AS prev_incarnation,
        sum(
            CASE WHEN state IN ('ONLINE', 'STOPPING') THEN 1 ELSE 0 END
            - CASE WHEN prev_state IN ('ONLINE', 'STOPPING') THEN 1 ELSE 0 END
        ) OVER (ORDER BY log_offset ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS serving_since
    FROM {broker_changes}
    -- What follows, backwards: Spark reads an unbounded following frame anew for every row.
    WINDOW after AS (PARTITION BY broker_id ORDER BY log_offset DESC ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
),
ended AS (
    SELECT
        *,
        CASE WHEN cause_code = 'BROKER_REGISTERED' THEN prev_incarnation ELSE incarnation_id END AS ended_incarnation,
        CASE WHEN cause_code = 'SESSION_EXPIRED' THEN 1 ELSE 0 END AS silence
    FROM followed
    WHERE prev_state IN ('ONLINE', 'STOPPING') AND state IN ('OFFLINE', 'FENCED')
),
counted AS (
    SELECT
        *,
        CAST(CASE WHEN silence = 1
            THEN sum(silence) OVER (ORDER BY unix_millis(ts) RANGE BETWEEN 2000 PRECEDING AND 2000 FOLLOWING)
            ELSE 0 END AS BIGINT) AS burst
    FROM ended
),
claims AS (
    SELECT controller_epoch, min(ts) AS ts FROM {records} WHERE type = 1000 GROUP BY controller_epoch
),
before AS (
    SELECT count(CASE WHEN NOT fenced THEN 1 END) AS serving FROM {initial} WHERE type = 0
)
SELECT
    e.log_offset, e.ts, e.broker_id, e.cause_code,
    CASE WHEN e.silence = 1 THEN CAST(get_json_object(e.cause_detail, '$.silent_ms') AS BIGINT) END AS silent_ms,
    CASE
        WHEN e.cause_code IN ('SHUTDOWN_GRANTED', 'CONTROLLED_SHUTDOWN', 'FENCE_REQUESTED') OR e.prev_state = 'STOPPING'
            THEN 'stopped'
        WHEN e.op = 'unregister' THEN 'removed'
        WHEN e.cause_code = 'LOG_DIR_OFFLINE' THEN 'disk'
        WHEN e.op = 'register' THEN 'broker'
        WHEN e.back_incarnation <> e.ended_incarnation THEN 'broker'
        WHEN e.burst >= 2 AND e.burst >= b.serving + e.serving_since THEN 'controller'
        WHEN e.silence = 1 AND e.controller_epoch > 1 AND unix_millis(e.ts) - unix_millis(c.ts)
            <= coalesce(CAST(get_json_object(e.cause_detail, '$.silent_ms') AS BIGINT), 0) + 1000 THEN 'controller'
        WHEN e.back_incarnation = e.ended_incarnation THEN 'network'
        ELSE 'unknown'
    END AS verdict,
    e.back_offset, e.back_ts,
    CASE WHEN e.op = 'unregister' THEN 0
        ELSE greatest(0, coalesce(unix_millis(e.over_ts), {end_ms}) - unix_millis(e.ts)) END AS duration_ms,
    e.back_incarnation = e.ended_incarnation AS same_process,
    e.burst, e.controller_id
FROM counted e CROSS JOIN before b LEFT JOIN claims c ON e.controller_epoch = c.controller_epoch
ORDER BY e.log_offset
