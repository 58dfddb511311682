-- Who led each partition from when to when: -1 is nobody. {initial} holds the state where the export begins; an
-- interval that lasts is counted up to {end_ms}. Ordered by offset, never by time: clocks step at failovers.
-- columns:
--   pkey BIGINT: the partition's number: that of its topic times 2^24, and the partition
-- topic_id, topic_name, partition, leader, leader_epoch
--   from_offset BIGINT: the record that made it leader; of who led before the log begins, the newest record about the partition
--   from_ts TIMESTAMP: when that was written
-- cause_code
--   to_offset BIGINT: the record that ended it; null while it lasts
--   to_ts TIMESTAMP: when that was written
--   ended_by STRING: the cause of that record
--   duration_ms BIGINT: how long it lasted within the log, or the part of it that is looked at
--   lasting BOOLEAN: it lasted at the end
WITH named AS (
    SELECT log_offset, ts, cause_code, op, pkey, topic_id, topic_name, partition, leader, leader_epoch
    FROM {partition_changes}
    WHERE op <> 'change' OR changed % 2 = 1
    UNION ALL
    SELECT
        log_offset, ts, cause_code, 'create' AS op, topic_seq * 16777216 + partition AS pkey,
        topic_id, topic_name, partition, leader, leader_epoch
    FROM {initial}
    WHERE type = 3 AND topic_seq NOT IN (SELECT topic_seq FROM {initial} WHERE type = 1006)
),
followed AS (
    SELECT
        *,
        lead(log_offset) OVER life AS to_offset,
        lead(ts) OVER life AS to_ts,
        lead(cause_code) OVER life AS ended_by
    FROM named
    WINDOW life AS (PARTITION BY pkey ORDER BY log_offset)
)
SELECT
    pkey, topic_id, topic_name, partition, leader, leader_epoch,
    log_offset AS from_offset, ts AS from_ts, cause_code,
    to_offset, to_ts, ended_by,
    greatest(0, coalesce(unix_millis(to_ts), {end_ms}) - greatest(unix_millis(ts), {from_ms})) AS duration_ms,
    to_offset IS NULL AS lasting
FROM followed
WHERE op <> 'delete'
