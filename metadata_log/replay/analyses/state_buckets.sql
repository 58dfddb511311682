-- The 256 buckets: hex digits 0-1 of a line's hash choose one, digits 2-16 and 17-31 are xored into it.
SELECT
    substr(hash, 1, 2) AS bucket,
    count(*) AS line_count,
    bit_xor(CAST(conv(substr(hash, 3, 15), 16, 10) AS BIGINT)) AS x1,
    bit_xor(CAST(conv(substr(hash, 18, 15), 16, 10) AS BIGINT)) AS x2
FROM (SELECT sha2(line, 256) AS hash FROM {lines})
GROUP BY substr(hash, 1, 2)
