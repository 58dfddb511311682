-- Spells in which a partition's ISR was smaller than min.insync.replicas, so that it refused writes with acks=all. As in
-- Kafka, no more than all replicas are needed. Where neither the topic nor the cluster sets it, it is 1.
-- columns:
--   pkey BIGINT: the partition's number: that of its topic times 2^24, and the partition
-- topic_name, partition
--   from_offset BIGINT: the record that began it: a change of the partition, or of the setting
--   from_ts TIMESTAMP: when that was written
-- cause_code
--   isr_size INT: replicas in sync then
--   min_isr INT: the setting then
--   to_offset BIGINT: the record that ended it; null while it lasts
--   to_ts TIMESTAMP: when that was written
--   duration_ms BIGINT: how long it is known to have lasted within the log, or the part of it that is looked at
--   unknown_ms BIGINT: time beside, of which the log proves nothing: no controller is known to have been there
--   clock_stepped BOOLEAN: a clock stepped within it, so that more or less time may have passed
--   lasting BOOLEAN: it lasted at the end
WITH settings AS ( -- kept
    SELECT
        log_offset, ts, cause_code,
        CASE WHEN resource_type = 2 THEN resource_name END AS of_topic,
        coalesce(try_cast(config_value AS INT), 0) AS told,
        coalesce(c.known_ms, 0) AS at_known, coalesce(c.unknown_ms, 0) AS at_unknown, coalesce(c.steps, 0) AS at_steps
    FROM {records} r LEFT JOIN {clock} c ON r.batch_base = c.batch_base
    WHERE type = 4 AND config_name = 'min.insync.replicas' AND (resource_type = 2 OR resource_name = '')
    UNION ALL
    SELECT
        log_offset, ts, cause_code,
        CASE WHEN resource_type = 2 THEN resource_name END,
        coalesce(try_cast(config_value AS INT), 0), 0 AS at_known, 0 AS at_unknown, 0 AS at_steps
    FROM {initial}
    WHERE type = 4 AND config_name = 'min.insync.replicas' AND (resource_type = 2 OR resource_name = '')
),
sized AS (
    SELECT
        pkey, topic_name, partition, log_offset, ts, cause_code,
        -- What changes while its topic is deleted, and can be restored, is no life.
        CASE op WHEN 'delete' THEN false WHEN 'change' THEN NULL ELSE true END AS lives,
        CAST(size(isr) AS INT) AS isr_size, CAST(size(replicas) AS INT) AS replica_count,
        -- A restored topic has the settings that are written behind its restoration.
        CASE op WHEN 'restore' THEN 0 END AS topic_min_isr,
        coalesce(c.known_ms, 0) AS at_known, coalesce(c.unknown_ms, 0) AS at_unknown, coalesce(c.steps, 0) AS at_steps
    FROM {partition_changes} p LEFT JOIN {clock} c ON p.batch_base = c.batch_base
    -- Most changes leave an ISR as large as it was: without them, little is left to be sorted.
    WHERE op <> 'change' OR changed % 8 >= 4 OR size(isr) IS DISTINCT FROM size(prev_isr)
    UNION ALL
    SELECT
        topic_seq * 16777216 + partition, topic_name, partition, log_offset, ts, cause_code,
        true, CAST(size(isr) AS INT), CAST(size(replicas) AS INT), NULL, 0 AS at_known, 0 AS at_unknown, 0 AS at_steps
    FROM {initial}
    WHERE type = 3 AND topic_seq NOT IN (SELECT topic_seq FROM {initial} WHERE type = 1006)
),
-- Those that may have been under it: their ISR was once smaller than the largest setting.
partitions AS ( -- kept
    SELECT pkey, topic_name, partition, CAST(floor(pkey / 16777216.0) AS BIGINT) AS topic_seq
    FROM sized
    WHERE isr_size < (SELECT greatest(1, coalesce(max(told), 1)) FROM settings)
    GROUP BY pkey, topic_name, partition
),
told AS (
    SELECT /*+ BROADCAST(p) */
        s.pkey, s.topic_name, s.partition, s.log_offset, s.ts, s.cause_code, s.lives, s.isr_size, s.replica_count,
        s.topic_min_isr, CAST(NULL AS INT) AS cluster_min_isr, s.at_known, s.at_unknown, s.at_steps
    FROM sized s JOIN (SELECT pkey FROM partitions) p ON s.pkey = p.pkey
    UNION ALL
    -- A setting of a topic is that of the topic of that name which was created last before it.
    SELECT
        p.pkey, p.topic_name, p.partition, s.log_offset, s.ts, s.cause_code, NULL, NULL, NULL, s.told, NULL,
        s.at_known, s.at_unknown, s.at_steps
    FROM settings s JOIN partitions p ON s.of_topic = p.topic_name AND s.log_offset > p.topic_seq
    UNION ALL
    SELECT
        p.pkey, p.topic_name, p.partition, s.log_offset, s.ts, s.cause_code, NULL, NULL, NULL, NULL, s.told,
        s.at_known, s.at_unknown, s.at_steps
    FROM settings s CROSS JOIN partitions p
    WHERE s.of_topic IS NULL
),
so_far AS (
    SELECT
        pkey, topic_name, partition, log_offset, ts, cause_code, at_known, at_unknown, at_steps,
        coalesce(last_value(lives) IGNORE NULLS OVER up_to_here, false) AS lives,
        last_value(isr_size) IGNORE NULLS OVER up_to_here AS isr_size,
        last_value(replica_count) IGNORE NULLS OVER up_to_here AS replica_count,
        coalesce(
            nullif(last_value(topic_min_isr) IGNORE NULLS OVER up_to_here, 0),
            nullif(last_value(cluster_min_isr) IGNORE NULLS OVER up_to_here, 0),
            1
        ) AS min_isr
    FROM told
    WINDOW up_to_here AS (
        PARTITION BY pkey ORDER BY log_offset ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    )
),
judged AS (
    SELECT *, lives AND isr_size < least(min_isr, replica_count) AS is_under FROM so_far
),
compared AS (
    SELECT *, lag(is_under) OVER (PARTITION BY pkey ORDER BY log_offset) AS was_under FROM judged
),
turned AS (
    SELECT
        *,
        lead(log_offset) OVER (PARTITION BY pkey ORDER BY log_offset) AS to_offset,
        lead(ts) OVER (PARTITION BY pkey ORDER BY log_offset) AS to_ts,
        lead(at_known) OVER (PARTITION BY pkey ORDER BY log_offset) AS to_known,
        lead(at_unknown) OVER (PARTITION BY pkey ORDER BY log_offset) AS to_unknown,
        lead(at_steps) OVER (PARTITION BY pkey ORDER BY log_offset) AS to_steps
    FROM compared
    WHERE is_under <> coalesce(was_under, false)
)
SELECT
    pkey, topic_name, partition, log_offset AS from_offset, ts AS from_ts, cause_code, isr_size, min_isr, to_offset, to_ts,
    coalesce(to_known, {end_known_ms}) - at_known AS duration_ms,
    coalesce(to_unknown, {end_unknown_ms}) - at_unknown AS unknown_ms,
    coalesce(to_steps, {end_steps}) > at_steps AS clock_stepped,
    to_offset IS NULL AS lasting
FROM turned
WHERE is_under AND (to_offset IS NULL OR to_offset >= {from_offset})
