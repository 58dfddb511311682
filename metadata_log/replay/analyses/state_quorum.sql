-- What concerns the whole cluster: finalized features (12), the next producer id (15), the quorum's version
-- (1004) and voters (1005), a row each.
WITH newest AS (
    SELECT
        *,
        row_number() OVER (PARTITION BY type, coalesce(feature_name, '') ORDER BY log_offset DESC) AS age
    FROM {records}
    WHERE type IN (12, 15, 1004, 1005)
)
SELECT
    type, type_name, log_offset, ts, broker_id, broker_epoch,
    feature_name, feature_level, next_producer_id, kraft_version, voters
FROM newest
WHERE age = 1 AND (type <> 12 OR feature_level <> 0)
