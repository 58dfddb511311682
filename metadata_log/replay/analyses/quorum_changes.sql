-- Each change of the quorum, with what it was before: who is in charge, its version, and its voters. {records} holds the
-- state before {from_offset}, its position among it, and all records from there on.
-- columns:
-- log_offset, batch_base, ts, controller_epoch, controller_id, actor, request_id, operation, cause_code, cause_detail
--   op STRING: claim (a controller took over, or claimed once more), version or voters
-- kraft_version, voters
--   prev_controller_id INT: the controller in charge before; null where the log does not say
--   prev_controller_epoch INT: its claim
--   prev_kraft_version INT: the quorum's version before
--   prev_voters voters: the voters before
--   prev_offset BIGINT: the record that named the version or the voters before; null for claims
--   prev_ts TIMESTAMP: when that was
WITH told AS (
    SELECT
        *,
        CASE WHEN type IN (1004, 1005) THEN lag(log_offset) OVER alike END AS prev_offset,
        CASE WHEN type IN (1004, 1005) THEN lag(ts) OVER alike END AS prev_ts
    FROM {records}
    WHERE type IN (1000, 1002, 1004, 1005)
    WINDOW alike AS (PARTITION BY type ORDER BY log_offset)
),
-- Kafka's claim may share its offset with the voters that it names.
compared AS (
    SELECT
        log_offset, batch_base, ts, controller_epoch, controller_id, actor, request_id, operation, cause_code, cause_detail,
        type, prev_offset, prev_ts,
        last_value(kraft_version) IGNORE NULLS OVER up_to_here AS kraft_version,
        last_value(voters) IGNORE NULLS OVER up_to_here AS voters,
        last_value(controller_id) IGNORE NULLS OVER before AS prev_controller_id,
        last_value(controller_epoch) IGNORE NULLS OVER before AS prev_controller_epoch,
        last_value(kraft_version) IGNORE NULLS OVER before AS prev_kraft_version,
        last_value(voters) IGNORE NULLS OVER before AS prev_voters
    FROM told
    WINDOW
        up_to_here AS (ORDER BY log_offset, type ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW),
        before AS (ORDER BY log_offset, type ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
)
SELECT
    log_offset, batch_base, ts, controller_epoch, controller_id, actor, request_id, operation, cause_code, cause_detail,
    CASE type WHEN 1000 THEN 'claim' WHEN 1004 THEN 'version' ELSE 'voters' END AS op,
    kraft_version, voters, prev_controller_id, prev_controller_epoch, prev_kraft_version, prev_voters,
    CASE WHEN prev_offset >= 0 THEN prev_offset END AS prev_offset, prev_ts
FROM compared
WHERE log_offset >= {from_offset} AND type <> 1002
ORDER BY log_offset, type
