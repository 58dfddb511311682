-- The leader of each partition from when to when: -1 is none. {initial} holds the state where the export begins; an
-- interval that lasts is counted up to the end. {clock} says when each batch was written. Ordered by offset, never by time: clocks step at failovers.
-- columns:
--   pkey BIGINT: the partition's number: that of its topic times 2^24, and the partition
-- topic_id, topic_name, partition, leader, leader_epoch
--   from_offset BIGINT: the record that made it leader; of who led before the log begins, the newest record about the partition
--   from_ts TIMESTAMP: when that was written
-- cause_code
--   to_offset BIGINT: the record that ended it; null while it lasts
--   to_ts TIMESTAMP: when that was written
--   ended_by STRING: the cause of that record
--   duration_ms BIGINT: how long it is known to have lasted within the log, or the part of it that is looked at
--   unknown_ms BIGINT: time beside, of which the log proves nothing: no controller is known to have been there
--   clock_stepped BOOLEAN: a clock stepped within it, so that more or less time may have passed
--   lasting BOOLEAN: it lasted at the end
WITH named AS (
    SELECT
        log_offset, ts, cause_code, op, pkey, topic_id, topic_name, partition, leader, leader_epoch,
        coalesce(c.known_ms, 0) AS at_known, coalesce(c.unknown_ms, 0) AS at_unknown, coalesce(c.steps, 0) AS at_steps
    FROM {partition_changes} p LEFT JOIN {clock} c ON p.batch_base = c.batch_base
    WHERE op <> 'change' OR changed % 2 = 1
    UNION ALL
    SELECT
        log_offset, ts, cause_code, 'create' AS op, topic_seq * 16777216 + partition AS pkey,
        topic_id, topic_name, partition, leader, leader_epoch, 0 AS at_known, 0 AS at_unknown, 0 AS at_steps
    FROM {initial}
    WHERE type = 3 AND topic_seq NOT IN (SELECT topic_seq FROM {initial} WHERE type = 1006)
),
followed AS (
    SELECT
        *,
        lead(log_offset) OVER life AS to_offset,
        lead(ts) OVER life AS to_ts,
        lead(cause_code) OVER life AS ended_by,
        lead(at_known) OVER life AS to_known,
        lead(at_unknown) OVER life AS to_unknown,
        lead(at_steps) OVER life AS to_steps
    FROM named
    WINDOW life AS (PARTITION BY pkey ORDER BY log_offset)
)
SELECT
    pkey, topic_id, topic_name, partition, leader, leader_epoch,
    log_offset AS from_offset, ts AS from_ts, cause_code,
    to_offset, to_ts, ended_by,
    coalesce(to_known, {end_known_ms}) - at_known AS duration_ms,
    coalesce(to_unknown, {end_unknown_ms}) - at_unknown AS unknown_ms,
    coalesce(to_steps, {end_steps}) > at_steps AS clock_stepped,
    to_offset IS NULL AS lasting
FROM followed
WHERE op <> 'delete'
