-- Each change of a partition, with the values before it and the actor: most analyses then need no window.
-- {records} holds the state before {from_offset} and all records from there on.
--
-- changed: 1 leader, 2 isr, 4 replicas, 8 reassignment. flags: 1 leaderless, 2 under-replicated,
-- 8 not led by the preferred replica, 16 being reassigned. names.py turns both into lists of names.
-- columns:
-- log_offset, batch_base, ts, controller_epoch, controller_id, actor, request_id, operation, cause_code, cause_detail
--   op STRING: create, change, delete (of a topic that can be restored, too), or restore
--   pkey BIGINT: the partition's number: that of its topic times 2^24, and the partition
-- topic_id, topic_name, partition
--   changed INT: what changed: 1 leader, 2 ISR, 4 replicas, 8 reassignment, added up
-- leader, leader_epoch, partition_epoch, leader_recovery_state, isr, replicas, adding_replicas, removing_replicas
-- eligible_leader_replicas, last_known_elr, directories
--   flags INT: the partition is 1 leaderless, 2 under-replicated, 8 not led by its first replica, 16 being reassigned, added up
--   prev_offset BIGINT: the change before
--   prev_ts TIMESTAMP: when that was
--   prev_leader INT: the leader before
--   prev_isr ARRAY<INT>: the ISR before
--   prev_replicas ARRAY<INT>: the replicas before, where they changed
--   prev_flags INT: the flags before
--   prev_leader_epoch INT: the number of elections before
--   prev_partition_epoch INT: the number of changes before
--   prev_leader_recovery_state INT: as it was before
--   prev_adding_replicas ARRAY<INT>: the replicas that a reassignment added, where these changed
--   prev_removing_replicas ARRAY<INT>: the replicas that it removed, where these changed
--   prev_eligible_leader_replicas ARRAY<INT>: the eligible leader replicas before, where they changed
--   prev_last_known_elr ARRAY<INT>: the last known ones before, where they changed
--   prev_directories ARRAY<STRING>: the log directory of each replica before, where one changed
WITH events AS (
    SELECT
        log_offset, batch_base, ts, controller_epoch, controller_id, actor, request_id, operation, cause_code, cause_detail, type,
        CASE type WHEN 3 THEN 'create' ELSE 'change' END AS op,
        topic_seq * 16777216 + partition AS pkey,
        topic_id, topic_name, partition,
        leader, leader_epoch, partition_epoch, leader_recovery_state, isr, replicas, adding_replicas, removing_replicas,
        eligible_leader_replicas, last_known_elr, directories
    FROM {records}
    WHERE type IN (3, 5)
    UNION ALL
    -- A topic that is removed, deleted so that it can be restored (1006), or restored (1007): it has no leaders then.
    SELECT
        gone.log_offset, gone.batch_base, gone.ts, gone.controller_epoch, gone.controller_id,
        gone.actor, gone.request_id, gone.operation,
        gone.cause_code, gone.cause_detail, gone.type,
        CASE gone.type WHEN 1007 THEN 'restore' ELSE 'delete' END AS op,
        p.topic_seq * 16777216 + p.partition AS pkey,
        p.topic_id, p.topic_name, p.partition,
        -1, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
    FROM {records} gone JOIN {records} p ON gone.topic_seq = p.topic_seq AND p.log_offset < gone.log_offset
    WHERE gone.type IN (9, 1006, 1007) AND p.type = 3 AND gone.log_offset >= {from_offset}
),
afterwards AS (
    SELECT
        log_offset, batch_base, ts, controller_epoch, controller_id, actor, request_id, operation, cause_code, cause_detail, op,
        type = 9 AS removed,
        pkey, topic_id, topic_name, partition,
        leader IS NOT NULL AS leader_told,
        isr IS NOT NULL AS isr_told,
        replicas IS NOT NULL AS replicas_told,
        adding_replicas IS NOT NULL OR removing_replicas IS NOT NULL AS reassignment_told,
        last_value(leader) IGNORE NULLS OVER so_far AS leader,
        CAST(sum(CASE WHEN type = 3 THEN leader_epoch WHEN type = 5 AND leader IS NOT NULL THEN 1 ELSE 0 END)
            OVER so_far AS INT)
            AS leader_epoch,
        CAST(sum(CASE type WHEN 3 THEN partition_epoch WHEN 5 THEN 1 ELSE 0 END) OVER so_far AS INT)
            AS partition_epoch,
        last_value(leader_recovery_state) IGNORE NULLS OVER so_far AS leader_recovery_state,
        last_value(isr) IGNORE NULLS OVER so_far AS isr,
        last_value(replicas) IGNORE NULLS OVER so_far AS replicas,
        last_value(adding_replicas) IGNORE NULLS OVER so_far AS adding_replicas,
        last_value(removing_replicas) IGNORE NULLS OVER so_far AS removing_replicas,
        last_value(eligible_leader_replicas) IGNORE NULLS OVER so_far AS eligible_leader_replicas,
        last_value(last_known_elr) IGNORE NULLS OVER so_far AS last_known_elr,
        last_value(directories) IGNORE NULLS OVER so_far AS directories,
        lag(log_offset) OVER life AS prev_offset,
        lag(ts) OVER life AS prev_ts,
        lag(type) OVER life = 9 AS prev_removed,
        lag(leader) IGNORE NULLS OVER life AS prev_leader,
        lag(isr) IGNORE NULLS OVER life AS prev_isr,
        lag(replicas) IGNORE NULLS OVER life AS prev_replicas,
        lag(adding_replicas) IGNORE NULLS OVER life AS prev_adding,
        lag(removing_replicas) IGNORE NULLS OVER life AS prev_removing,
        lag(leader_recovery_state) IGNORE NULLS OVER life AS prev_leader_recovery_state,
        lag(eligible_leader_replicas) IGNORE NULLS OVER life AS prev_elr,
        lag(last_known_elr) IGNORE NULLS OVER life AS prev_last_known_elr,
        lag(directories) IGNORE NULLS OVER life AS prev_directories
    FROM events
    WINDOW
        so_far AS (PARTITION BY pkey ORDER BY log_offset ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW),
        life AS (PARTITION BY pkey ORDER BY log_offset)
),
compared AS (
    SELECT
        *,
        CASE WHEN removed THEN 0 ELSE
            CASE WHEN leader = -1 THEN 1 ELSE 0 END
            + CASE WHEN size(isr) < size(replicas) THEN 2 ELSE 0 END
            + CASE WHEN leader <> replicas[0] THEN 8 ELSE 0 END
            + CASE WHEN size(adding_replicas) + size(removing_replicas) > 0 THEN 16 ELSE 0 END
        END AS flags,
        CASE WHEN prev_offset IS NULL THEN NULL WHEN prev_removed THEN 0 ELSE
            CASE WHEN prev_leader = -1 THEN 1 ELSE 0 END
            + CASE WHEN size(prev_isr) < size(prev_replicas) THEN 2 ELSE 0 END
            + CASE WHEN prev_leader <> prev_replicas[0] THEN 8 ELSE 0 END
            + CASE WHEN size(prev_adding) + size(prev_removing) > 0 THEN 16 ELSE 0 END
        END AS prev_flags
    FROM afterwards
)
SELECT
    log_offset, batch_base, ts, controller_epoch, controller_id, actor, request_id, operation, cause_code, cause_detail, op,
    pkey, topic_id, topic_name, partition,
    CASE WHEN op = 'delete' THEN 15 ELSE
        CASE WHEN leader_told AND (prev_leader IS NULL OR leader <> prev_leader) THEN 1 ELSE 0 END
        + CASE WHEN isr_told THEN 2 ELSE 0 END
        + CASE WHEN replicas_told THEN 4 ELSE 0 END
        + CASE WHEN reassignment_told THEN 8 ELSE 0 END
    END AS changed,
    CASE WHEN op <> 'delete' THEN leader END AS leader,
    CASE WHEN op <> 'delete' THEN leader_epoch END AS leader_epoch,
    CASE WHEN op <> 'delete' THEN partition_epoch END AS partition_epoch,
    CASE WHEN op <> 'delete' THEN leader_recovery_state END AS leader_recovery_state,
    CASE WHEN op <> 'delete' THEN isr END AS isr,
    CASE WHEN op <> 'delete' THEN replicas END AS replicas,
    CASE WHEN op <> 'delete' THEN adding_replicas END AS adding_replicas,
    CASE WHEN op <> 'delete' THEN removing_replicas END AS removing_replicas,
    CASE WHEN op <> 'delete' THEN eligible_leader_replicas END AS eligible_leader_replicas,
    CASE WHEN op <> 'delete' THEN last_known_elr END AS last_known_elr,
    CASE WHEN op <> 'delete' THEN directories END AS directories,
    flags,
    CASE WHEN prev_offset >= 0 THEN prev_offset END AS prev_offset,
    prev_ts, prev_leader, prev_isr,
    CASE WHEN replicas_told OR op = 'delete' THEN prev_replicas END AS prev_replicas,
    prev_flags,
    CASE op WHEN 'create' THEN NULL WHEN 'change' THEN leader_epoch - CASE WHEN leader_told THEN 1 ELSE 0 END ELSE leader_epoch
        END AS prev_leader_epoch,
    CASE op WHEN 'create' THEN NULL WHEN 'change' THEN partition_epoch - 1 ELSE partition_epoch END AS prev_partition_epoch,
    prev_leader_recovery_state,
    CASE WHEN op = 'delete' OR adding_replicas <> prev_adding THEN prev_adding END AS prev_adding_replicas,
    CASE WHEN op = 'delete' OR removing_replicas <> prev_removing THEN prev_removing END AS prev_removing_replicas,
    CASE WHEN op = 'delete' OR eligible_leader_replicas <> prev_elr THEN prev_elr END AS prev_eligible_leader_replicas,
    CASE WHEN op = 'delete' OR last_known_elr <> prev_last_known_elr THEN prev_last_known_elr END AS prev_last_known_elr,
    CASE WHEN op = 'delete' OR directories <> prev_directories THEN prev_directories END AS prev_directories
FROM compared
WHERE log_offset >= {from_offset}
ORDER BY log_offset, pkey
