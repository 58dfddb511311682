-- The quotas of clients in force.
-- columns:
-- type, type_name, log_offset, ts, quota_entity, quota_key, quota_value, quota_removed
WITH newest AS (
    SELECT *, row_number() OVER (PARTITION BY quota_entity, quota_key ORDER BY log_offset DESC) AS age
    FROM {records}
    WHERE type = 14
)
SELECT type, type_name, log_offset, ts, quota_entity, quota_key, quota_value, quota_removed
FROM newest
WHERE age = 1 AND NOT quota_removed
