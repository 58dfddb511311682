-- Each block of producer ids that was given to a broker, with where it begins. {records} holds the state before
-- {from_offset} and all records from there on.
-- columns:
-- log_offset, batch_base, ts, controller_epoch, controller_id, actor, request_id, operation, cause_code, cause_detail
-- broker_id, broker_epoch, next_producer_id
--   prev_next_producer_id BIGINT: the first one not given out before; null: none had been
--   prev_offset BIGINT: the block before
--   prev_ts TIMESTAMP: when that was
WITH compared AS (
    SELECT
        *,
        lag(next_producer_id) OVER known AS prev_next_producer_id,
        lag(log_offset) OVER known AS prev_offset,
        lag(ts) OVER known AS prev_ts
    FROM {records}
    WHERE type = 15
    WINDOW known AS (ORDER BY log_offset)
)
SELECT
    log_offset, batch_base, ts, controller_epoch, controller_id, actor, request_id, operation, cause_code, cause_detail,
    broker_id, broker_epoch, next_producer_id, prev_next_producer_id,
    CASE WHEN prev_offset >= 0 THEN prev_offset END AS prev_offset, prev_ts
FROM compared
WHERE log_offset >= {from_offset}
ORDER BY log_offset
