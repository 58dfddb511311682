-- What happened to the partitions of each topic, by cause.
-- columns:
-- topic_name, topic_id, cause_code
--   leader_changes BIGINT: changes of leader
--   losses BIGINT: of these, to no leader
--   isr_shrinks BIGINT: changes that left fewer replicas in sync
--   isr_expands BIGINT: changes that left more
SELECT
    topic_name,
    topic_id,
    coalesce(cause_code, '') AS cause_code,
    count(CASE WHEN changed % 2 = 1 THEN 1 END) AS leader_changes,
    count(CASE WHEN leader = -1 AND prev_leader <> -1 THEN 1 END) AS losses,
    count(CASE WHEN size(isr) < size(prev_isr) THEN 1 END) AS isr_shrinks,
    count(CASE WHEN size(isr) > size(prev_isr) THEN 1 END) AS isr_expands
FROM {partition_changes}
WHERE op = 'change'
GROUP BY topic_name, topic_id, coalesce(cause_code, '')
ORDER BY leader_changes DESC, topic_name, cause_code, topic_id
