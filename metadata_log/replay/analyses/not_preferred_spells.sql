-- Spells in which another replica than the first, the preferred one, led a partition; one without a leader is among the leaderless.
-- columns:
--   pkey BIGINT: the partition's number: that of its topic times 2^24, and the partition
-- topic_name, partition
--   from_offset BIGINT: the record that began it
--   from_ts TIMESTAMP: when that was written
-- cause_code
--   to_offset BIGINT: the record that ended it; null while it lasts
--   to_ts TIMESTAMP: when that was written
--   duration_ms BIGINT: how long it is known to have lasted within the log, or the part of it that is looked at
--   unknown_ms BIGINT: time beside, of which the log proves nothing: no controller is known to have been there
--   clock_stepped BOOLEAN: a clock stepped within it, so that more or less time may have passed
--   lasting BOOLEAN: it lasted at the end
WITH told AS (
    SELECT
        pkey, topic_name, partition, log_offset, ts, cause_code,
        -- What changes while its topic is deleted, and can be restored, is no life.
        CASE op WHEN 'delete' THEN false WHEN 'change' THEN NULL ELSE true END AS lives,
        flags % 16 >= 8 AND flags % 2 = 0 AS is_other,
        coalesce(c.known_ms, 0) AS at_known, coalesce(c.unknown_ms, 0) AS at_unknown, coalesce(c.steps, 0) AS at_steps
    FROM {partition_changes} p LEFT JOIN {clock} c ON p.batch_base = c.batch_base
    -- Most changes begin and end no spell: without them, little is left to be sorted.
    WHERE op <> 'change'
        OR (flags % 16 >= 8 AND flags % 2 = 0) IS DISTINCT FROM (prev_flags % 16 >= 8 AND prev_flags % 2 = 0)
    UNION ALL
    SELECT
        topic_seq * 16777216 + partition, topic_name, partition, log_offset, ts, cause_code,
        true, leader >= 0 AND leader <> replicas[0], 0 AS at_known, 0 AS at_unknown, 0 AS at_steps
    FROM {initial}
    WHERE type = 3 AND topic_seq NOT IN (SELECT topic_seq FROM {initial} WHERE type = 1006)
),
judged AS (
    SELECT
        *,
        is_other AND coalesce(
            last_value(lives) IGNORE NULLS OVER (
                PARTITION BY pkey ORDER BY log_offset ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
            ),
            false
        ) AS is_led_by_other
    FROM told
),
compared AS (
    SELECT *, lag(is_led_by_other) OVER (PARTITION BY pkey ORDER BY log_offset) AS was_led_by_other FROM judged
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
    WHERE is_led_by_other <> coalesce(was_led_by_other, false)
)
SELECT
    pkey, topic_name, partition, log_offset AS from_offset, ts AS from_ts, cause_code, to_offset, to_ts,
    coalesce(to_known, {end_known_ms}) - at_known AS duration_ms,
    coalesce(to_unknown, {end_unknown_ms}) - at_unknown AS unknown_ms,
    coalesce(to_steps, {end_steps}) > at_steps AS clock_stepped,
    to_offset IS NULL AS lasting
FROM turned
WHERE is_led_by_other
