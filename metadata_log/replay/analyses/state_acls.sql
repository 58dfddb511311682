-- The access control lists in force.
-- columns:
-- type, type_name, log_offset, ts, acl_id, resource_type, resource_name, pattern_type, principal, host, acl_operation
-- permission_type
WITH newest AS (
    SELECT *, row_number() OVER (PARTITION BY acl_id ORDER BY log_offset DESC) AS age
    FROM {records}
    WHERE type IN (18, 19)
)
SELECT
    type, type_name, log_offset, ts, acl_id, resource_type, resource_name, pattern_type, principal, host, acl_operation,
    permission_type
FROM newest
WHERE age = 1 AND type = 18
