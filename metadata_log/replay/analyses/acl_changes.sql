-- Each ACL that was created or deleted, with what it says, and who asked for it. {records} holds the state before
-- {from_offset} and all records from there on.
-- columns:
-- log_offset, batch_base, ts, controller_epoch, controller_id, actor, request_id, operation, cause_code, cause_detail
--   op STRING: create or delete
-- acl_id, resource_type, resource_name, pattern_type, principal, host, acl_operation, permission_type
--   prev_offset BIGINT: the record that created it, of one that was deleted
--   prev_ts TIMESTAMP: when that was
WITH compared AS (
    SELECT
        log_offset, batch_base, ts, controller_epoch, controller_id, actor, request_id, operation, cause_code, cause_detail,
        type, acl_id,
        coalesce(resource_type, lag(resource_type) OVER known) AS resource_type,
        coalesce(resource_name, lag(resource_name) OVER known) AS resource_name,
        coalesce(pattern_type, lag(pattern_type) OVER known) AS pattern_type,
        coalesce(principal, lag(principal) OVER known) AS principal,
        coalesce(host, lag(host) OVER known) AS host,
        coalesce(acl_operation, lag(acl_operation) OVER known) AS acl_operation,
        coalesce(permission_type, lag(permission_type) OVER known) AS permission_type,
        lag(log_offset) OVER known AS prev_offset,
        lag(ts) OVER known AS prev_ts
    FROM {records}
    WHERE type IN (18, 19)
    WINDOW known AS (PARTITION BY acl_id ORDER BY log_offset)
)
SELECT
    log_offset, batch_base, ts, controller_epoch, controller_id, actor, request_id, operation, cause_code, cause_detail,
    CASE type WHEN 18 THEN 'create' ELSE 'delete' END AS op,
    acl_id, resource_type, resource_name, pattern_type, principal, host, acl_operation, permission_type,
    CASE WHEN prev_offset >= 0 THEN prev_offset END AS prev_offset, prev_ts
FROM compared
WHERE log_offset >= {from_offset}
ORDER BY log_offset
