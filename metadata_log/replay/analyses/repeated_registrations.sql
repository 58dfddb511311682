-- Registrations by a process that was registered already: it keeps its epoch, except in logs of Kafka before 3.8.
-- columns:
-- log_offset, ts, broker_id
--   state STRING: the broker's state from then on
--   prev_state STRING: its state before
WITH known AS (
    SELECT log_offset, ts, broker_id, broker_epoch, incarnation_id, op, state, prev_state FROM {broker_changes}
    UNION ALL
    SELECT log_offset, ts, broker_id, broker_epoch, incarnation_id, 'initial' AS op, NULL, NULL FROM {initial} WHERE type = 0
),
compared AS (
    SELECT
        *, lag(broker_epoch) OVER of_broker AS prev_epoch, lag(incarnation_id) OVER of_broker AS prev_incarnation,
        lag(op) OVER of_broker AS prev_op
    FROM known
    WINDOW of_broker AS (PARTITION BY broker_id ORDER BY log_offset)
)
SELECT log_offset, ts, broker_id, state, prev_state
FROM compared
WHERE op = 'register' AND (broker_epoch = prev_epoch OR (incarnation_id = prev_incarnation AND prev_op <> 'unregister'))
ORDER BY log_offset
