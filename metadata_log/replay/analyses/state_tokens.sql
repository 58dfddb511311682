-- The delegation tokens that are there (10 in the log; 26 removes one). One whose time is over stays until it is removed.
-- columns:
-- type, type_name, log_offset, ts, token_id, token_owner, token_requester, token_renewers, token_issued_ms, token_max_ms
-- token_expires_ms
WITH newest AS (
    SELECT *, row_number() OVER (PARTITION BY token_id ORDER BY log_offset DESC) AS age
    FROM {records}
    WHERE type IN (10, 26)
)
SELECT
    type, type_name, log_offset, ts, token_id, token_owner, token_requester, token_renewers, token_issued_ms,
    token_max_ms, token_expires_ms
FROM newest
WHERE age = 1 AND type = 10
