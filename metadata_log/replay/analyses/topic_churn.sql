-- What happened to the partitions of each topic, by cause.
SELECT
    topic_name,
    topic_id,
    coalesce(cause_code, '') AS cause_code,
    sum(CASE WHEN changed % 2 = 1 THEN 1 ELSE 0 END) AS leader_changes,
    sum(CASE WHEN leader = -1 AND prev_leader <> -1 THEN 1 ELSE 0 END) AS losses,
    sum(CASE WHEN size(isr) < size(prev_isr) THEN 1 ELSE 0 END) AS isr_shrinks,
    sum(CASE WHEN size(isr) > size(prev_isr) THEN 1 ELSE 0 END) AS isr_expands
FROM {partition_changes}
WHERE op = 'change'
GROUP BY topic_name, topic_id, coalesce(cause_code, '')
ORDER BY leader_changes DESC, topic_name, cause_code, topic_id
