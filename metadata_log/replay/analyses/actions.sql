-- Requests and their actors: each batch that a client or a node asked for.
-- columns:
--   log_offset BIGINT: its first record
-- ts, actor, operation, request_id
--   record_count BIGINT: records that it led to
--   topic_count BIGINT: topics that they are about
--   example STRING: the first of these topics by name, or the first resource or broker
SELECT
    batch_base AS log_offset, min(ts) AS ts, actor, operation, request_id,
    count(*) AS record_count,
    count(DISTINCT topic_name) AS topic_count,
    coalesce(min(topic_name), min(nullif(resource_name, '')), CAST(min(broker_id) AS STRING)) AS example
FROM {records}
WHERE actor IS NOT NULL OR operation IS NOT NULL
GROUP BY batch_base, actor, operation, request_id
ORDER BY log_offset
