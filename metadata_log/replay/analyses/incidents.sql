-- Losses of brokers and takeovers of controllers, each from its cause to its recovery: the broker serves again, or is removed
-- from the cluster, and every partition that it left without a leader, or with a smaller ISR, has its leader and its whole
-- ISR. Those that overlap share a number, so that a long loss joins all that begin before it ends.
-- columns:
--   incident BIGINT: their number, from 1
--   from_offset BIGINT: the record that began it
--   from_ts TIMESTAMP: when that was written
--   trigger STRING: broker or controller
--   node_id INT: the broker that was lost, or the controller that took over
--   verdict STRING: that of the fencing, or the kind of the takeover
--   leaders_moved BIGINT: partitions of which another broker became leader
--   left_leaderless BIGINT: partitions that lost their leader without another
--   isr_shrinks BIGINT: partitions that lost a replica in sync
--   leaderless_ms BIGINT: until the last of them had a leader; 0: at once
--   whole_isr_ms BIGINT: until the last of them had its whole ISR; null: not yet
--   write_gap_ms BIGINT: how long nothing was written; null for brokers
--   to_ts TIMESTAMP: when all had recovered; null: not yet
--   duration_ms BIGINT: how long that took, up to the end if it has not
WITH fenced AS (
    SELECT log_offset, ts, broker_id, verdict, back_offset, back_ts FROM {fencings} WHERE verdict <> 'stopped'
),
-- An operator who removes a broker expects it no more: its loss ends there.
removed AS (
    SELECT f.log_offset, min(b.ts) AS ts
    FROM fenced f JOIN {broker_changes} b ON f.broker_id = b.broker_id
    WHERE b.op = 'unregister' AND b.log_offset >= f.log_offset AND (f.back_offset IS NULL OR b.log_offset < f.back_offset)
    GROUP BY f.log_offset
),
touched AS (
    SELECT
        CAST(get_json_object(cause_detail, '$.broker_id') AS INT) AS broker_id,
        log_offset, pkey, leader, prev_leader, size(isr) < size(prev_isr) AS shrinks, changed, CAST(NULL AS BIGINT) AS fenced_at
    FROM {partition_changes}
    WHERE op = 'change'
        AND cause_code IN ('SESSION_EXPIRED', 'BROKER_REGISTERED', 'LOG_DIR_OFFLINE', 'BROKER_UNREGISTERED')
    UNION ALL
    SELECT broker_id, log_offset, NULL, NULL, NULL, NULL, NULL, log_offset FROM fenced
),
assigned AS (
    -- A broker is fenced by the last record of its parts: what it lost stands before it. A registration stands before.
    SELECT
        *,
        coalesce(
            min(fenced_at) OVER (
                -- The rows from here on, backwards: Spark reads an unbounded following frame anew for every row.
                PARTITION BY broker_id ORDER BY log_offset DESC ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
            ),
            max(fenced_at) OVER (
                PARTITION BY broker_id ORDER BY log_offset ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
            )
        ) AS lost_at
    FROM touched
),
leaderless AS (
    SELECT a.broker_id, a.lost_at, max(s.to_ts) AS to_ts, max(CASE WHEN s.lasting THEN 1 ELSE 0 END) AS lasting
    FROM assigned a JOIN {leaderless_spells} s ON a.pkey = s.pkey AND a.log_offset = s.from_offset
    WHERE a.lost_at IS NOT NULL
    GROUP BY a.broker_id, a.lost_at
),
-- Each shrink lies in the newest spell that began up to it, if that has not ended: found by a window, for a join by range
-- pairs every shrink of a partition with all of its spells.
spells_and_shrinks AS (
    SELECT pkey, from_offset AS log_offset, from_offset, CAST(NULL AS INT) AS broker_id, CAST(NULL AS BIGINT) AS lost_at
    FROM {under_replicated_spells}
    UNION ALL
    SELECT pkey, log_offset, NULL, broker_id, lost_at FROM assigned WHERE lost_at IS NOT NULL AND shrinks
),
covered AS (
    SELECT
        pkey, log_offset, broker_id, lost_at,
        last_value(from_offset) IGNORE NULLS OVER (
            PARTITION BY pkey ORDER BY log_offset, coalesce(lost_at, -1)
            ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        ) AS spell_from
    FROM spells_and_shrinks
),
thin AS (
    SELECT c.broker_id, c.lost_at, max(s.to_ts) AS to_ts, max(CASE WHEN s.lasting THEN 1 ELSE 0 END) AS lasting
    FROM covered c JOIN {under_replicated_spells} s ON c.pkey = s.pkey AND c.spell_from = s.from_offset
    WHERE c.lost_at IS NOT NULL AND (s.to_offset IS NULL OR s.to_offset > c.log_offset)
    GROUP BY c.broker_id, c.lost_at
),
lost AS (
    SELECT
        broker_id, lost_at,
        count(CASE WHEN changed % 2 = 1 AND leader <> -1 THEN 1 END) AS leaders_moved,
        count(CASE WHEN changed % 2 = 1 AND leader = -1 THEN 1 END) AS left_leaderless,
        count(CASE WHEN shrinks THEN 1 END) AS isr_shrinks
    FROM assigned
    WHERE pkey IS NOT NULL AND lost_at IS NOT NULL
    GROUP BY broker_id, lost_at
),
found AS (
    SELECT
        f.log_offset AS from_offset, f.ts AS from_ts, 'broker' AS trigger, f.broker_id AS node_id, f.verdict,
        coalesce(l.leaders_moved, 0) AS leaders_moved,
        coalesce(l.left_leaderless, 0) AS left_leaderless,
        coalesce(l.isr_shrinks, 0) AS isr_shrinks,
        greatest(0, coalesce(
            CASE WHEN n.lasting = 1 THEN {end_ms} ELSE unix_millis(n.to_ts) END - unix_millis(f.ts), 0
        )) AS leaderless_ms,
        CASE WHEN t.lasting = 1 THEN NULL
            ELSE greatest(0, coalesce(unix_millis(t.to_ts) - unix_millis(f.ts), 0)) END AS whole_isr_ms,
        CAST(NULL AS BIGINT) AS write_gap_ms,
        CASE WHEN f.verdict = 'removed' OR (
                coalesce(r.ts, f.back_ts) IS NOT NULL AND coalesce(n.lasting, 0) + coalesce(t.lasting, 0) = 0
            ) THEN greatest(coalesce(r.ts, f.back_ts, f.ts), coalesce(n.to_ts, f.ts), coalesce(t.to_ts, f.ts)) END AS to_ts
    FROM fenced f
    LEFT JOIN removed r ON f.log_offset = r.log_offset
    LEFT JOIN lost l ON f.broker_id = l.broker_id AND f.log_offset = l.lost_at
    LEFT JOIN leaderless n ON f.broker_id = n.broker_id AND f.log_offset = n.lost_at
    LEFT JOIN thin t ON f.broker_id = t.broker_id AND f.log_offset = t.lost_at
    UNION ALL
    SELECT
        first_offset, ts, 'controller', controller_id, kind, 0, 0, 0, 0, 0, coalesce(silent_ms, 0), ts
    FROM {controller_takeovers}
    WHERE kind <> 'founded'
),
timed AS (
    SELECT
        *,
        unix_millis(from_ts) - coalesce(write_gap_ms, 0) AS begin_ms,
        coalesce(unix_millis(to_ts), {end_ms}) AS finish_ms
    FROM found
),
chained AS (
    SELECT
        *,
        max(finish_ms) OVER (
            ORDER BY begin_ms, from_offset ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS busy_until_ms
    FROM timed
)
SELECT
    CAST(sum(CASE WHEN busy_until_ms >= begin_ms THEN 0 ELSE 1 END) OVER (
        ORDER BY begin_ms, from_offset ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS BIGINT) AS incident,
    from_offset, from_ts, trigger, node_id, verdict, leaders_moved, left_leaderless, isr_shrinks,
    leaderless_ms, whole_isr_ms, write_gap_ms, to_ts,
    CASE WHEN trigger = 'controller' THEN write_gap_ms
        ELSE greatest(0, finish_ms - unix_millis(from_ts)) END AS duration_ms
FROM chained
ORDER BY incident, from_offset
