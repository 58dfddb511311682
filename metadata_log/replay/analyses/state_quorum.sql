-- What concerns the whole cluster: finalized features (12), the next producer id (15), the quorum's version
-- (1004) and voters (1005), and the controllers that registered (27) and were not removed (1010), a row each.
-- columns:
-- type, type_name, log_offset, ts, broker_id, broker_epoch, feature_name, feature_level, next_producer_id, kraft_version
-- voters, node_id, registration_epoch, incarnation_id, zk_migration_ready, endpoints, features
WITH newest AS (
    SELECT
        *,
        row_number() OVER (
            PARTITION BY CASE WHEN type = 1010 THEN 27 ELSE type END, coalesce(feature_name, ''), coalesce(node_id, -1)
            ORDER BY log_offset DESC
        ) AS age
    FROM {records}
    WHERE type IN (12, 15, 27, 1004, 1005, 1010)
)
SELECT
    type, type_name, log_offset, ts, broker_id, broker_epoch,
    feature_name, feature_level, next_producer_id, kraft_version, voters,
    node_id, registration_epoch, incarnation_id, zk_migration_ready, endpoints, features
FROM newest
WHERE age = 1 AND type <> 1010 AND (type <> 12 OR feature_level <> 0)
