-- Registrations by a process that was registered already: it keeps its epoch.
-- columns:
-- log_offset, ts, broker_id
--   state STRING: the broker's state from then on
--   prev_state STRING: its state before
WITH known AS (
    SELECT log_offset, ts, broker_id, broker_epoch, op, state, prev_state FROM {broker_changes}
    UNION ALL
    SELECT log_offset, ts, broker_id, broker_epoch, 'initial' AS op, NULL, NULL FROM {initial} WHERE type = 0
),
compared AS (
    SELECT *, lag(broker_epoch) OVER (PARTITION BY broker_id ORDER BY log_offset) AS prev_epoch FROM known
)
SELECT log_offset, ts, broker_id, state, prev_state
FROM compared
WHERE op = 'register' AND broker_epoch = prev_epoch
ORDER BY log_offset
