-- Ends of service of brokers, and a verdict on what lay behind each: stopped (it asked to, or the controller in its own process
-- ended with it), stopped or lost (it led nothing, and Kafka's log does not tell which), removed (by an operator), disk (a
-- log directory failed), stalled (its process stood still, or was too busy: its connection was up, and acknowledged what was
-- sent), broker (its process ended: another one registered next), controller (what the broker had sent lay unread; or at least two brokers and half
-- of those that served fell silent within 2 s; or the controller itself was new, or had just been silent), network (its process
-- lived on: it was cut off, or, in Kafka's log and in those of earlier releases, stalled), or unknown (it has not returned).
-- columns:
-- log_offset, ts, broker_id, cause_code
--   silent_ms BIGINT: how long it had been silent, where that was the cause
--   verdict STRING: stopped, stopped or lost, removed, disk, stalled, broker, controller, network or unknown
--   link STRING: what its connection showed when its session ended: acknowledges, unanswered, ended or unread; null: not told
--   back_offset BIGINT: the record that put it into service again; null: not yet
--   back_ts TIMESTAMP: when that was written
--   duration_ms BIGINT: how long it is known to have been out of service: until it served again, or was removed from the
--       cluster, or up to the end
--   unknown_ms BIGINT: time beside, of which the log proves nothing
--   clock_stepped BOOLEAN: a clock stepped within it, so that more or less time may have passed
--   same_process BOOLEAN: it returned as the same process; null: not yet
--   burst BIGINT: brokers that fell silent within 2 s of it, itself among them; 0 where that was not the cause
-- controller_id
WITH timed AS (
    SELECT b.*, c.known_ms AS at_known, c.unknown_ms AS at_unknown, c.steps AS at_steps, c.awake_ms
    FROM {broker_changes} b JOIN {clock} c ON b.batch_base = c.batch_base
),
followed AS (
    SELECT
        *,
        min(CASE WHEN state = 'ONLINE' THEN log_offset END) OVER after AS back_offset,
        last_value(CASE WHEN state = 'ONLINE' THEN ts END) IGNORE NULLS OVER after AS back_ts,
        last_value(CASE WHEN state = 'ONLINE' THEN incarnation_id END) IGNORE NULLS OVER after AS back_incarnation,
        last_value(CASE WHEN state = 'ONLINE' OR op = 'unregister' THEN at_known END) IGNORE NULLS OVER after AS over_known,
        last_value(CASE WHEN state = 'ONLINE' OR op = 'unregister' THEN at_unknown END) IGNORE NULLS OVER after AS over_unknown,
        last_value(CASE WHEN state = 'ONLINE' OR op = 'unregister' THEN at_steps END) IGNORE NULLS OVER after AS over_steps,
        lag(incarnation_id) OVER (PARTITION BY broker_id ORDER BY log_offset) AS prev_incarnation,
        sum(
            CASE WHEN state IN ('ONLINE', 'STOPPING') THEN 1 ELSE 0 END
            - CASE WHEN prev_state IN ('ONLINE', 'STOPPING') THEN 1 ELSE 0 END
        ) OVER (ORDER BY log_offset ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS serving_since
    FROM timed
    -- What follows, backwards: Spark reads an unbounded following frame again for every row.
    WINDOW after AS (PARTITION BY broker_id ORDER BY log_offset DESC ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
),
ended AS (
    SELECT
        *,
        CASE WHEN cause_code = 'BROKER_REGISTERED' THEN prev_incarnation ELSE incarnation_id END AS ended_incarnation,
        CASE WHEN cause_code = 'SESSION_EXPIRED' THEN 1 ELSE 0 END AS silence,
        CASE WHEN cause_code = 'SESSION_EXPIRED' THEN get_json_object(cause_detail, '$.link') END AS link
    FROM followed
    WHERE prev_state IN ('ONLINE', 'STOPPING') AND state IN ('OFFLINE', 'FENCED')
),
counted AS (
    SELECT
        *,
        CAST(CASE WHEN silence = 1
            THEN sum(silence) OVER (ORDER BY at_known + at_unknown RANGE BETWEEN 2000 PRECEDING AND 2000 FOLLOWING)
            ELSE 0 END AS BIGINT) AS burst
    FROM ended
),
claims AS (
    SELECT r.controller_epoch, min(c.known_ms + c.unknown_ms) AS at_ms
    FROM {records} r JOIN {clock} c ON r.batch_base = c.batch_base
    WHERE r.type = 1000
    GROUP BY r.controller_epoch
),
ends AS (
    -- The last claim lasts up to the end of what is looked at.
    SELECT
        controller_epoch,
        CASE WHEN lead(controller_epoch) OVER (ORDER BY controller_epoch) IS NULL THEN {end_known_ms} + {end_unknown_ms}
            ELSE max(known_ms + unknown_ms) END AS at_ms
    FROM {clock}
    GROUP BY controller_epoch
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
        WHEN e.op = 'change' AND coalesce(e.cause_code, 'STOPPED_OR_SILENT') = 'STOPPED_OR_SILENT' THEN CASE
            WHEN e.controller_id = e.broker_id AND d.at_ms - e.at_known - e.at_unknown <= 1000 THEN 'stopped'
            WHEN e.back_incarnation = e.ended_incarnation THEN 'network'
            ELSE 'stopped or lost'
        END
        WHEN e.cause_code = 'LOG_DIR_OFFLINE' THEN 'disk'
        WHEN e.op = 'register' THEN 'broker'
        WHEN e.silence = 1 AND e.link = 'acknowledges' THEN 'stalled'
        WHEN e.silence = 1 AND e.link = 'unread' THEN 'controller'
        WHEN e.back_incarnation <> e.ended_incarnation THEN 'broker'
        -- A controller that was silent for longer than a session found its brokers' sessions expired when it woke.
        WHEN e.silence = 1 AND e.awake_ms BETWEEN 0 AND 20000 THEN 'controller'
        WHEN e.burst >= 2 AND e.burst >= b.serving + e.serving_since THEN 'controller'
        WHEN e.silence = 1 AND e.controller_epoch > 1 AND e.at_known + e.at_unknown - c.at_ms
            <= coalesce(CAST(get_json_object(e.cause_detail, '$.silent_ms') AS BIGINT), 0) + 1000 THEN 'controller'
        WHEN e.back_incarnation = e.ended_incarnation THEN 'network'
        ELSE 'unknown'
    END AS verdict,
    e.link, e.back_offset, e.back_ts,
    CASE WHEN e.op = 'unregister' THEN 0
        ELSE coalesce(e.over_known, {end_known_ms}) - e.at_known END AS duration_ms,
    CASE WHEN e.op = 'unregister' THEN 0
        ELSE coalesce(e.over_unknown, {end_unknown_ms}) - e.at_unknown END AS unknown_ms,
    e.op <> 'unregister' AND coalesce(e.over_steps, {end_steps}) > e.at_steps AS clock_stepped,
    e.back_incarnation = e.ended_incarnation AS same_process,
    e.burst, e.controller_id
FROM counted e CROSS JOIN before b LEFT JOIN claims c ON e.controller_epoch = c.controller_epoch
LEFT JOIN ends d ON e.controller_epoch = d.controller_epoch
ORDER BY e.log_offset
