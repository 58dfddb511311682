-- Records of kinds that only Kafka has (ACLs, quotas, credentials, transactions), and records that this release does not know:
-- they keep their offsets, and no other table speaks of them. A known type in an unknown version has -2 for its number.
-- columns:
-- type, type_name
--   record_count BIGINT: how many
--   first_offset BIGINT: the first
--   last_offset BIGINT: the last
--   example STRING: what the last one says
SELECT
    type, type_name,
    count(*) AS record_count,
    min(log_offset) AS first_offset,
    max(log_offset) AS last_offset,
    max_by(opaque, log_offset) AS example
FROM {records}
WHERE opaque IS NOT NULL
GROUP BY type, type_name
ORDER BY type, type_name
