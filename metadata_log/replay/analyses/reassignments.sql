-- Each reassignment: its begin and its actor, the replicas before and after, how and when it ended. `ended` is completed,
-- cancelled, replaced (by another request) or topic deleted; null: it is under way, counted up to the end, and why_stuck
-- says why it cannot end in the present state, if it cannot. begun_offset is null where it began before the export.
-- {initial} holds the state where the export begins, {state} that at its end.
--
-- Flag 16: under way.
-- columns:
--   begun_offset BIGINT: the record that began it; null: it began before
--   begun_ts TIMESTAMP: when that was written
-- actor, topic_id, topic_name, partition
--   from_replicas ARRAY<INT>: the replicas before
--   to_replicas ARRAY<INT>: those that it leads to
--   ended STRING: completed, cancelled, replaced or topic deleted; null: it is under way
--   ended_offset BIGINT: the record that ended it
--   ended_ts TIMESTAMP: when that was written
--   duration_ms BIGINT: how long it is known to have taken, up to the end if it is under way
--   unknown_ms BIGINT: time beside, of which the log proves nothing
--   why_stuck STRING: why it cannot end in the present state
WITH told AS (
    SELECT
        log_offset, ts, op, pkey, topic_id, topic_name, partition,
        coalesce(cause_code, '') = 'REASSIGNMENT_REQUESTED' AS is_requested,
        coalesce(prev_flags, 0) % 32 >= 16 AS was_under_way,
        flags % 32 >= 16 AS is_under_way,
        replicas, adding_replicas, removing_replicas,
        coalesce(prev_replicas, replicas) AS prev_replicas,
        coalesce(c.known_ms, 0) AS at_known, coalesce(c.unknown_ms, 0) AS at_unknown
    FROM {partition_changes} p LEFT JOIN {clock} c ON p.batch_base = c.batch_base
    WHERE op = 'delete' OR (op = 'change' AND changed >= 4)
    UNION ALL
    SELECT
        log_offset, ts, 'initial' AS op, topic_seq * 16777216 + partition AS pkey, topic_id, topic_name, partition,
        false AS is_requested, false AS was_under_way, true AS is_under_way,
        replicas, adding_replicas, removing_replicas, replicas AS prev_replicas,
        0 AS at_known, 0 AS at_unknown
    FROM {initial}
    WHERE type = 3 AND size(adding_replicas) + size(removing_replicas) > 0
),
known AS (
    SELECT *, last_value(adding_replicas) IGNORE NULLS OVER before AS prev_adding
    FROM told
    WINDOW before AS (PARTITION BY pkey ORDER BY log_offset ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
),
judged AS (
    SELECT
        *,
        CASE
            WHEN NOT was_under_way THEN NULL
            WHEN op = 'delete' THEN CASE WHEN NOT is_under_way THEN 'topic deleted' END
            WHEN is_under_way THEN 'replaced'
            WHEN NOT is_requested THEN 'completed'
            WHEN replicas = filter(prev_replicas, x -> NOT array_contains(prev_adding, x)) THEN 'cancelled'
            ELSE 'replaced'
        END AS ends
    FROM known
),
marked AS (
    SELECT
        *,
        op = 'initial' OR (op = 'change' AND (
            is_under_way
            OR (NOT was_under_way AND replicas <> prev_replicas)
            OR coalesce(ends, '') = 'replaced'
        )) AS begins
    FROM judged
),
followed AS (
    SELECT
        *,
        lead(ends) OVER life AS next_ends,
        lead(log_offset) OVER life AS next_offset,
        lead(ts) OVER life AS next_ts,
        lead(at_known) OVER life AS next_known,
        lead(at_unknown) OVER life AS next_unknown
    FROM marked
    WHERE begins OR ends IS NOT NULL
    WINDOW life AS (PARTITION BY pkey ORDER BY log_offset)
),
whole AS (
    SELECT
        CASE WHEN op = 'change' THEN log_offset END AS begun_offset,
        CASE WHEN op = 'change' THEN ts END AS begun_ts,
        topic_id, topic_name, partition,
        CASE WHEN op = 'change' THEN prev_replicas END AS from_replicas,
        filter(replicas, x -> NOT array_contains(removing_replicas, x)) AS to_replicas,
        CASE WHEN is_under_way THEN next_ends ELSE 'completed' END AS ended,
        CASE WHEN is_under_way THEN next_offset ELSE log_offset END AS ended_offset,
        CASE WHEN is_under_way THEN next_ts ELSE ts END AS ended_ts,
        CASE WHEN NOT is_under_way THEN 0 ELSE coalesce(next_known, {end_known_ms}) - at_known END AS took_ms,
        CASE WHEN NOT is_under_way THEN 0 ELSE coalesce(next_unknown, {end_unknown_ms}) - at_unknown END AS unknown_ms
    FROM followed
    WHERE begins
),
-- Why those under way are stuck, as `why_stuck` of quorum/partition_health.py says it: the first reason by rank.
added AS (
    SELECT topic_id, partition, leader, isr, removing_replicas, explode(adding_replicas) AS broker_id
    FROM {state}
    WHERE type = 3
),
reasons AS (
    SELECT
        added.topic_id, added.partition,
        CASE
            WHEN array_contains(added.removing_replicas, added.broker_id) THEN concat(
                'broker ', CAST(added.broker_id AS STRING), ' is both added and removed, as Kafka leaves it after one ',
                'reassignment over another: cancel it, or ask for other replicas'
            )
            WHEN added.leader = -1 OR array_contains(added.isr, added.broker_id) THEN NULL
            WHEN broker.broker_id IS NULL
                THEN concat('broker ', CAST(added.broker_id AS STRING), ', which is added, is not registered')
            WHEN broker.fenced
                THEN concat('broker ', CAST(added.broker_id AS STRING), ', which is added, is fenced')
            WHEN broker.in_controlled_shutdown
                THEN concat('broker ', CAST(added.broker_id AS STRING), ', which is added, is shutting down')
        END AS reason,
        CASE WHEN array_contains(added.removing_replicas, added.broker_id) THEN 0 ELSE 2 END * CAST(4294967296 AS BIGINT)
            + added.broker_id AS rank
    FROM added
    LEFT JOIN (
        SELECT broker_id, fenced, in_controlled_shutdown FROM {state} WHERE type = 0
    ) broker ON added.broker_id = broker.broker_id
    UNION ALL
    SELECT
        topic_id, partition, 'the partition has no leader, so nobody reports who is in sync' AS reason,
        CAST(4294967296 AS BIGINT) AS rank
    FROM {state}
    WHERE type = 3 AND leader = -1
),
stuck AS (
    SELECT topic_id, partition, min_by(reason, rank) AS why_stuck
    FROM reasons
    WHERE reason IS NOT NULL
    GROUP BY topic_id, partition
)
SELECT /*+ MERGE(whole, asked) */
    whole.begun_offset, whole.begun_ts, asked.actor,
    whole.topic_id, whole.topic_name, whole.partition, whole.from_replicas, whole.to_replicas,
    whole.ended, whole.ended_offset, whole.ended_ts,
    CASE WHEN whole.begun_ts IS NOT NULL THEN whole.took_ms END AS duration_ms,
    CASE WHEN whole.begun_ts IS NOT NULL THEN whole.unknown_ms END AS unknown_ms,
    CASE WHEN whole.ended IS NULL THEN stuck.why_stuck END AS why_stuck
FROM whole
LEFT JOIN (
    -- Only these begin one: a few of all changes.
    SELECT log_offset, actor
    FROM {records}
    WHERE type = 5 AND (replicas IS NOT NULL OR adding_replicas IS NOT NULL OR removing_replicas IS NOT NULL)
) asked ON whole.begun_offset = asked.log_offset
LEFT JOIN stuck ON whole.topic_id = stuck.topic_id AND whole.partition = stuck.partition
ORDER BY coalesce(whole.begun_offset, -1), whole.topic_name, whole.topic_id, whole.partition
