-- Each claim: who took over, how long the log had been silent, how long and how much it then wrote.
WITH claims AS (
    SELECT
        controller_epoch, controller_id, log_offset AS first_offset, ts,
        lead(log_offset) OVER (ORDER BY log_offset) AS to_offset,
        lead(ts) OVER (ORDER BY log_offset) AS to_ts
    FROM {records}
    WHERE type = 1000
)
SELECT
    c.controller_epoch, c.controller_id, c.first_offset, c.ts,
    CASE WHEN p.ts IS NOT NULL THEN greatest(0, unix_millis(c.ts) - unix_millis(p.ts)) END AS silent_ms,
    greatest(0, coalesce(unix_millis(c.to_ts), {end_ms}) - unix_millis(c.ts)) AS tenure_ms,
    coalesce(c.to_offset, {end_offset}) - c.first_offset AS record_count,
    c.to_offset IS NULL AS lasting
FROM claims c LEFT JOIN {records} p ON p.log_offset = c.first_offset - 1
ORDER BY c.first_offset
