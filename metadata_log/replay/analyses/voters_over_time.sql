-- The voters from when to when.
-- columns:
-- log_offset, ts
--   voter_ids ARRAY<INT>: the controllers that vote from then on
--   added ARRAY<INT>: those that did not vote before
--   removed ARRAY<INT>: those that voted before
-- cause_code, actor
--   to_offset BIGINT: the record that ended it; null while it lasts
--   to_ts TIMESTAMP: when that was written
WITH told AS (
    SELECT log_offset, ts, transform(voters, v -> v.id) AS voter_ids, cause_code, actor FROM {records} WHERE type = 1005
    UNION ALL
    SELECT log_offset, ts, transform(voters, v -> v.id), cause_code, actor FROM {initial} WHERE type = 1005
),
compared AS (
    SELECT
        *,
        lag(voter_ids) OVER (ORDER BY log_offset) AS before,
        lead(log_offset) OVER (ORDER BY log_offset) AS to_offset,
        lead(ts) OVER (ORDER BY log_offset) AS to_ts
    FROM told
)
SELECT
    log_offset, ts, voter_ids,
    CASE WHEN before IS NULL THEN voter_ids ELSE array_except(voter_ids, before) END AS added,
    coalesce(array_except(before, voter_ids), array_except(voter_ids, voter_ids)) AS removed,
    cause_code, actor, to_offset, to_ts
FROM compared
ORDER BY log_offset
