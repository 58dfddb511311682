-- Spells in which a partition had no leader.
-- columns:
--   pkey BIGINT: the partition's number: that of its topic times 2^24, and the partition
-- topic_name, partition
--   from_offset BIGINT: the record that took the leader
--   from_ts TIMESTAMP: when that was written
-- cause_code
--   to_offset BIGINT: the record that gave it one, or removed it; null while it lasts
--   to_ts TIMESTAMP: when that was written
--   ended_by STRING: the cause of that record
--   duration_ms BIGINT: how long it is known to have lasted within the log, or the part of it that is looked at
--   unknown_ms BIGINT: time beside, of which the log proves nothing: no controller is known to have been there
--   clock_stepped BOOLEAN: a clock stepped within it, so that more or less time may have passed
--   lasting BOOLEAN: it lasted at the end
SELECT
    pkey, topic_name, partition, from_offset, from_ts, cause_code, to_offset, to_ts, ended_by, duration_ms, unknown_ms,
    clock_stepped, lasting
FROM {leader_intervals}
WHERE leader = -1
