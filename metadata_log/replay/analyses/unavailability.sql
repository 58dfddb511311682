-- How long partitions of each topic had no leader.
-- columns:
-- topic_name, topic_id
--   episodes BIGINT: spells without a leader
--   partition_count BIGINT: partitions that had one
--   total_ms BIGINT: their durations together, as far as they are known
--   unknown_ms BIGINT: time beside, of which the log proves nothing
--   clock_stepped BOOLEAN: a clock stepped within one of them, so that more or less time may have passed
--   longest_ms BIGINT: the longest
--   lasting BIGINT: spells that last at the end
SELECT
    topic_name,
    topic_id,
    count(*) AS episodes,
    count(DISTINCT partition) AS partition_count,
    CAST(sum(duration_ms) AS BIGINT) AS total_ms,
    CAST(sum(unknown_ms) AS BIGINT) AS unknown_ms,
    max(CASE WHEN clock_stepped THEN 1 ELSE 0 END) = 1 AS clock_stepped,
    max(duration_ms) AS longest_ms,
    count(CASE WHEN lasting THEN 1 END) AS lasting
FROM {leader_intervals}
WHERE leader = -1
GROUP BY topic_name, topic_id
ORDER BY total_ms DESC, topic_name, topic_id
