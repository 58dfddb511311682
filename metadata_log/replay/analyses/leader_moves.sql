-- How many leaderships one batch moved from which broker to which.
-- columns:
-- batch_base
--   log_offset BIGINT: the first record of the batch that moved one
-- ts, cause_code, cause_detail
--   prev_leader INT: the leader before; -1 is none
-- leader
--   partition_count BIGINT: how many leaderships
SELECT
    batch_base,
    min(log_offset) AS log_offset,
    min(ts) AS ts,
    cause_code,
    cause_detail,
    prev_leader,
    leader,
    count(*) AS partition_count
FROM {partition_changes}
WHERE op = 'change' AND changed % 2 = 1
GROUP BY batch_base, cause_code, cause_detail, prev_leader, leader
ORDER BY batch_base, prev_leader, leader
