-- Each change of a topic, with what it was before. {records} holds the state before {from_offset} and all records from there
-- on. LIVE: it is there. DELETED: it was deleted, and can be restored. The topic's partitions and settings change in the
-- families of theirs.
-- columns:
-- log_offset, batch_base, ts, controller_epoch, controller_id, actor, request_id, operation, cause_code, cause_detail
--   op STRING: create, delete (so that it can be restored), restore or remove
-- topic_id, topic_name, topic_seq
--   state STRING: LIVE or DELETED; null: it is gone
-- deleted_at_ms, grace_ms, kept_configs
--   prev_state STRING: its state before; null: there was none
--   prev_deleted_at_ms BIGINT: when it had been deleted, in Unix ms
--   prev_grace_ms BIGINT: how long it could be restored
--   prev_kept_configs kept_configs: the settings that it would have got back
--   prev_offset BIGINT: the change before
--   prev_ts TIMESTAMP: when that was
WITH told AS (
    SELECT *, CASE type WHEN 1006 THEN 'DELETED' WHEN 9 THEN NULL ELSE 'LIVE' END AS state
    FROM {records}
    WHERE type IN (2, 9, 1006, 1007)
),
compared AS (
    SELECT
        *,
        lag(state) OVER known AS prev_state,
        lag(deleted_at_ms) OVER known AS prev_deleted_at_ms,
        lag(grace_ms) OVER known AS prev_grace_ms,
        lag(kept_configs) OVER known AS prev_kept_configs,
        lag(log_offset) OVER known AS prev_offset,
        lag(ts) OVER known AS prev_ts
    FROM told
    WINDOW known AS (PARTITION BY topic_id ORDER BY log_offset)
)
SELECT
    log_offset, batch_base, ts, controller_epoch, controller_id, actor, request_id, operation, cause_code, cause_detail,
    CASE type WHEN 2 THEN 'create' WHEN 9 THEN 'remove' WHEN 1006 THEN 'delete' ELSE 'restore' END AS op,
    topic_id, topic_name, topic_seq, state, deleted_at_ms, grace_ms, kept_configs,
    prev_state, prev_deleted_at_ms, prev_grace_ms, prev_kept_configs,
    CASE WHEN prev_offset >= 0 THEN prev_offset END AS prev_offset, prev_ts
FROM compared
WHERE log_offset >= {from_offset}
ORDER BY log_offset
