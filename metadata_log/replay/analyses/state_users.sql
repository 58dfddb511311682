-- The users' SCRAM credentials in force (11 in the log; 22 removes one).
-- columns:
-- type, type_name, log_offset, ts, user_name, scram_mechanism, scram_salt, scram_stored_key, scram_server_key
-- scram_iterations
WITH newest AS (
    SELECT *, row_number() OVER (PARTITION BY user_name, scram_mechanism ORDER BY log_offset DESC) AS age
    FROM {records}
    WHERE type IN (11, 22)
)
SELECT
    type, type_name, log_offset, ts, user_name, scram_mechanism, scram_salt, scram_stored_key, scram_server_key,
    scram_iterations
FROM newest
WHERE age = 1 AND type = 11
