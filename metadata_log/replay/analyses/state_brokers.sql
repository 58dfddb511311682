-- The registered brokers: each one's newest registration, as the changes since then left it.
-- `log_offset` is that of the last record about it, `cause_code` why it was last fenced.
-- columns:
-- type, type_name, log_offset, ts, cause_code, broker_id, broker_epoch, incarnation_id, fenced, in_controlled_shutdown
-- rack, endpoints, features, log_dirs, cordoned_log_dirs
WITH told AS (
    SELECT *, max(CASE WHEN type IN (0, 1) THEN log_offset END) OVER (PARTITION BY broker_id) AS registered_at
    FROM {records}
    WHERE type IN (0, 1, 17)
),
changed AS (
    SELECT
        broker_id,
        max(log_offset) AS log_offset,
        max_by(ts, log_offset) AS ts,
        max_by(fenced, CASE WHEN fenced IS NOT NULL THEN log_offset END) AS fenced,
        max_by(in_controlled_shutdown, CASE WHEN in_controlled_shutdown IS NOT NULL THEN log_offset END)
            AS in_controlled_shutdown,
        max_by(log_dirs, CASE WHEN log_dirs IS NOT NULL THEN log_offset END) AS log_dirs,
        max_by(cordoned_log_dirs, CASE WHEN cordoned_log_dirs IS NOT NULL THEN log_offset END)
            AS cordoned_log_dirs,
        max_by(coalesce(cause_code, ''), CASE WHEN fenced THEN log_offset END) AS cause_code
    FROM told
    WHERE log_offset > registered_at
    GROUP BY broker_id
)
SELECT
    b.type,
    b.type_name,
    coalesce(c.log_offset, b.log_offset) AS log_offset,
    coalesce(c.ts, b.ts) AS ts,
    coalesce(c.cause_code, b.cause_code) AS cause_code,
    b.broker_id,
    b.broker_epoch,
    b.incarnation_id,
    coalesce(c.fenced, b.fenced) AS fenced,
    coalesce(c.in_controlled_shutdown, b.in_controlled_shutdown) AS in_controlled_shutdown,
    b.rack,
    b.endpoints,
    b.features,
    coalesce(c.log_dirs, b.log_dirs) AS log_dirs,
    coalesce(c.cordoned_log_dirs, b.cordoned_log_dirs) AS cordoned_log_dirs
FROM told b LEFT JOIN changed c ON b.broker_id = c.broker_id
WHERE b.type = 0 AND b.log_offset = b.registered_at
