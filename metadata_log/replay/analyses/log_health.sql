-- The log under each claim: whether offsets are dense, claims follow each other, and clocks go on.
-- columns:
-- controller_epoch, controller_id
--   first_offset BIGINT: the first record under this claim
--   last_offset BIGINT: the last one
--   record_count BIGINT: records
--   batch_count BIGINT: batches
--   missing BIGINT: offsets between them without a record; more than 0 is damage
--   is_overlapped BOOLEAN: records of a later claim come before its end; true is damage
--   clock_steps_back BIGINT: batches with an earlier time than the batch before
--   largest_step_ms BIGINT: the largest of these steps; 0 without one
WITH batches AS (
    SELECT batch_base, batch_last_offset, min(controller_epoch) AS controller_epoch, min(controller_id) AS controller_id,
        min(ts) AS ts,
        -- In Kafka's log one record can do the work of several of ours, which all have its offset.
        count(CASE WHEN coalesce(cause_code, '') <> 'TOLD_BY_ANOTHER' THEN 1 END) AS record_count
    FROM {records}
    GROUP BY batch_base, batch_last_offset
),
stepped AS (
    -- The hint keeps Spark from a broadcast of all batches.
    SELECT /*+ MERGE(b, p) */ b.*, coalesce(unix_millis(p.ts) - unix_millis(b.ts), 0) AS back_ms
    FROM batches b LEFT JOIN batches p ON p.batch_last_offset + 1 = b.batch_base
),
claimed AS (
    SELECT
        controller_epoch,
        max(controller_id) AS controller_id,
        min(batch_base) AS first_offset,
        max(batch_last_offset) AS last_offset,
        CAST(sum(record_count) AS BIGINT) AS record_count,
        count(*) AS batch_count,
        count(CASE WHEN back_ms > 0 THEN 1 END) AS clock_steps_back,
        greatest(0, max(back_ms)) AS largest_step_ms
    FROM stepped
    GROUP BY controller_epoch
)
SELECT
    controller_epoch, controller_id, first_offset, last_offset, record_count, batch_count,
    last_offset - first_offset + 1 - record_count AS missing,
    coalesce(lead(first_offset) OVER (ORDER BY controller_epoch) <= last_offset, false) AS is_overlapped,
    clock_steps_back, largest_step_ms
FROM claimed
ORDER BY controller_epoch
