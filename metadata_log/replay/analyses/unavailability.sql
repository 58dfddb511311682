-- How long partitions of each topic had no leader.
SELECT
    topic_name,
    topic_id,
    count(*) AS episodes,
    count(DISTINCT partition) AS partition_count,
    sum(duration_ms) AS total_ms,
    max(duration_ms) AS longest_ms,
    sum(CASE WHEN lasting THEN 1 ELSE 0 END) AS lasting
FROM {leader_intervals}
WHERE leader = -1
GROUP BY topic_name, topic_id
ORDER BY total_ms DESC, topic_name, topic_id
