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
-- A row for each replica: leader and ISR are among the replicas.
held AS (
    SELECT leader, replicas[0] AS preferred, isr, explode(replicas) AS broker_id FROM living
),
counted AS (
    SELECT
        broker_id,
        count(CASE WHEN leader = broker_id THEN 1 END) AS leaders,
        count(CASE WHEN preferred = broker_id THEN 1 END) AS preferred,
        count(CASE WHEN preferred = broker_id AND leader <> broker_id THEN 1 END) AS astray,
        count(*) AS replicas,
        count(CASE WHEN array_contains(isr, broker_id) THEN 1 END) AS in_sync
    FROM held
    GROUP BY broker_id
)
SELECT
    b.broker_id,
    coalesce(c.leaders, 0) AS leaders, coalesce(c.preferred, 0) AS preferred,
    coalesce(c.replicas, 0) AS replicas, coalesce(c.in_sync, 0) AS in_sync,
    CASE WHEN c.preferred > 0 THEN round(CAST(100 AS DOUBLE) * c.astray / c.preferred, 2) ELSE CAST(0 AS DOUBLE) END AS imbalance_percent
FROM {brokers} b LEFT JOIN counted c ON b.broker_id = c.broker_id
ORDER BY b.broker_id
