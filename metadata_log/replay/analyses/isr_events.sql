-- Changes of ISRs: who left, who came.
-- columns:
-- log_offset, ts
--   pkey BIGINT: the partition's number: that of its topic times 2^24, and the partition
-- topic_name, partition
--   kind STRING: shrink, expand, or replace: others, and as many
--   brokers_out ARRAY<INT>: who left
--   brokers_in ARRAY<INT>: who came
--   size_before INT: replicas in sync before
--   size_after INT: and after
--   replica_count INT: all replicas
-- cause_code
SELECT
    log_offset, ts, pkey, topic_name, partition,
    CASE
        WHEN size(isr) < size(prev_isr) THEN 'shrink'
        WHEN size(isr) > size(prev_isr) THEN 'expand'
        ELSE 'replace'
    END AS kind,
    array_except(prev_isr, isr) AS brokers_out,
    array_except(isr, prev_isr) AS brokers_in,
    CAST(size(prev_isr) AS INT) AS size_before,
    CAST(size(isr) AS INT) AS size_after,
    CAST(size(replicas) AS INT) AS replica_count,
    cause_code
FROM {partition_changes}
WHERE op = 'change' AND changed % 4 >= 2
    -- No broker is twice in an ISR. So of two ISRs of one size, either each has a broker that the other lacks, or neither has.
    AND (size(isr) <> size(prev_isr) OR size(array_except(isr, prev_isr)) > 0)
