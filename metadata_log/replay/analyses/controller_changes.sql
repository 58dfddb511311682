-- Each change of a controller's registration, with the one before. {records} holds the state before {from_offset} and all
-- records from there on. quorum_changes has the controller in charge.
-- columns:
-- log_offset, batch_base, ts, controller_epoch, controller_id, actor, request_id, operation, cause_code, cause_detail
--   op STRING: register or unregister
-- node_id
-- registration_epoch, incarnation_id, endpoints, features
--   prev_registration_epoch BIGINT: the offset of the registration before; null: there was none
--   prev_incarnation_id STRING: the process that was registered
--   prev_endpoints endpoints: where that listened
--   prev_features features: the levels of features that it supported
--   prev_offset BIGINT: the change before
--   prev_ts TIMESTAMP: when that was
WITH told AS (
    SELECT *, type = 27 AS stays FROM {records} WHERE type IN (27, 1010)
),
compared AS (
    SELECT
        *,
        lag(CASE WHEN stays THEN registration_epoch END) OVER known AS prev_registration_epoch,
        lag(incarnation_id) OVER known AS prev_incarnation_id,
        lag(endpoints) OVER known AS prev_endpoints,
        lag(features) OVER known AS prev_features,
        lag(CASE WHEN stays THEN log_offset END) OVER known AS prev_offset,
        lag(CASE WHEN stays THEN ts END) OVER known AS prev_ts
    FROM told
    WINDOW known AS (PARTITION BY node_id ORDER BY log_offset)
)
SELECT
    log_offset, batch_base, ts, controller_epoch, controller_id, actor, request_id, operation, cause_code, cause_detail,
    CASE WHEN stays THEN 'register' ELSE 'unregister' END AS op,
    node_id, CASE WHEN stays THEN registration_epoch END AS registration_epoch, incarnation_id, endpoints, features,
    prev_registration_epoch, prev_incarnation_id, prev_endpoints, prev_features,
    CASE WHEN prev_offset >= 0 THEN prev_offset END AS prev_offset, prev_ts
FROM compared
WHERE log_offset >= {from_offset}
ORDER BY log_offset
