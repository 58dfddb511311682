-- How leaderships are spread at the end: a broker leads most evenly where it leads what prefers it.
-- columns:
-- broker_id
--   leaders BIGINT: partitions that it leads
--   preferred BIGINT: partitions whose first replica it is
--   replicas BIGINT: replicas that it holds
--   in_sync BIGINT: of them, in sync
--   imbalance_percent DOUBLE: partitions that prefer it and are led by others, in percent of those that prefer it
WITH living AS (
    SELECT leader, replicas, isr FROM {partitions} WHERE topic_id NOT IN (SELECT topic_id FROM {topics} WHERE type = 1006)
),
led AS (SELECT leader AS broker_id, count(*) AS leaders FROM living GROUP BY leader),
preferring AS (
    SELECT replicas[0] AS broker_id, count(*) AS preferred, count(CASE WHEN leader <> replicas[0] THEN 1 END) AS astray
    FROM living
    GROUP BY replicas[0]
),
held AS (
    SELECT broker_id, count(*) AS replicas FROM (SELECT explode(replicas) AS broker_id FROM living) GROUP BY broker_id
),
synced AS (
    SELECT broker_id, count(*) AS in_sync FROM (SELECT explode(isr) AS broker_id FROM living) GROUP BY broker_id
)
SELECT
    b.broker_id,
    coalesce(l.leaders, 0) AS leaders, coalesce(p.preferred, 0) AS preferred,
    coalesce(h.replicas, 0) AS replicas, coalesce(s.in_sync, 0) AS in_sync,
    CASE WHEN p.preferred > 0 THEN round(CAST(100 AS DOUBLE) * p.astray / p.preferred, 2) ELSE CAST(0 AS DOUBLE) END AS imbalance_percent
FROM {brokers} b
LEFT JOIN led l ON b.broker_id = l.broker_id
LEFT JOIN preferring p ON b.broker_id = p.broker_id
LEFT JOIN held h ON b.broker_id = h.broker_id
LEFT JOIN synced s ON b.broker_id = s.broker_id
ORDER BY b.broker_id
