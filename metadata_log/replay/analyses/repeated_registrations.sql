-- Registrations by a process that was registered already: a new one's epoch is the offset of its record.
-- columns:
-- log_offset, ts, broker_id
--   state STRING: the broker's state from then on
--   prev_state STRING: its state before
SELECT log_offset, ts, broker_id, state, prev_state
FROM {broker_changes}
WHERE op = 'register' AND broker_epoch <> log_offset
ORDER BY log_offset
