-- Changes of partitions in each hour by topic. A flap is a spell under-replicated that ended within five minutes.
-- columns:
--   hour TIMESTAMP: its beginning
-- topic_name
--   leader_changes BIGINT: changes of leader
--   isr_shrinks BIGINT: changes that left fewer replicas in sync
--   isr_expands BIGINT: changes that left more
--   flaps BIGINT: flaps that ended in this hour
WITH changes AS (
    SELECT
        date_trunc('hour', ts) AS hour, topic_name,
        count(CASE WHEN changed % 2 = 1 THEN 1 END) AS leader_changes,
        count(CASE WHEN size(isr) < size(prev_isr) THEN 1 END) AS isr_shrinks,
        count(CASE WHEN size(isr) > size(prev_isr) THEN 1 END) AS isr_expands
    FROM {partition_changes}
    WHERE op = 'change'
    GROUP BY date_trunc('hour', ts), topic_name
),
flaps AS (
    SELECT date_trunc('hour', to_ts) AS hour, topic_name, count(*) AS flaps
    FROM {under_replicated_spells}
    WHERE NOT lasting AND unix_millis(to_ts) - unix_millis(from_ts) <= 300000
    GROUP BY date_trunc('hour', to_ts), topic_name
)
SELECT
    coalesce(c.hour, f.hour) AS hour, coalesce(c.topic_name, f.topic_name) AS topic_name,
    coalesce(c.leader_changes, 0) AS leader_changes,
    coalesce(c.isr_shrinks, 0) AS isr_shrinks,
    coalesce(c.isr_expands, 0) AS isr_expands,
    coalesce(f.flaps, 0) AS flaps
FROM changes c FULL OUTER JOIN flaps f ON c.hour = f.hour AND c.topic_name = f.topic_name
ORDER BY hour, topic_name
