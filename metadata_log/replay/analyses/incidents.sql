-- Losses of brokers and takeovers of controllers, each from its cause to its recovery: the broker serves again, or is removed
-- from the cluster, and every partition that it left without a leader, or with a smaller ISR, has its leader and its whole
-- ISR. Those that overlap share a number, so that a long loss joins all that begin before it ends. A takeover is the moment
-- of its claim: since when nothing could be written, the log does not say.
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
--   write_gap_at_most_ms BIGINT: silent_ms of the takeover, which counts the time in which the log was idle; null for brokers
--   to_ts TIMESTAMP: when all had recovered; null: not yet
--   duration_ms BIGINT: how long that took, up to the end if it has not; null for takeovers
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
-- What each batch did because of a broker. Spells are found by row, and then only batches are left.
touched AS (
    SELECT
        batch_base, cause_detail, min(log_offset) AS log_offset,
        count(CASE WHEN changed % 2 = 1 AND leader <> -1 THEN 1 END) AS leaders_moved,
        count(CASE WHEN changed % 2 = 1 AND leader = -1 THEN 1 END) AS left_leaderless,
        count(CASE WHEN size(isr) < size(prev_isr) THEN 1 END) AS isr_shrinks
    FROM {partition_changes}
    WHERE op = 'change'
        AND cause_code IN ('SESSION_EXPIRED', 'BROKER_REGISTERED', 'LOG_DIR_OFFLINE', 'BROKER_UNREGISTERED')
    GROUP BY batch_base, cause_detail
),
leaderless AS (
    -- Both sides grow with the log, and Spark takes either for small.
    SELECT /*+ MERGE(c, s) */ c.batch_base, c.cause_detail, s.to_ts, s.lasting
    FROM {partition_changes} c JOIN {leaderless_spells} s ON c.pkey = s.pkey AND c.log_offset = s.from_offset
    WHERE c.op = 'change' AND c.changed % 2 = 1 AND c.leader = -1
        AND c.cause_code IN ('SESSION_EXPIRED', 'BROKER_REGISTERED', 'LOG_DIR_OFFLINE', 'BROKER_UNREGISTERED')
),
-- Each shrink lies in the newest spell that began up to it, if that has not ended: found by a window, for a join by range
-- pairs every shrink of a partition with all of its spells.
spells_and_shrinks AS (
    SELECT
        pkey, from_offset AS log_offset, coalesce(to_offset, 9223372036854775807) AS to_offset, coalesce(to_ts, from_ts) AS to_ts,
        CAST(NULL AS BIGINT) AS batch_base, CAST(NULL AS STRING) AS cause_detail
    FROM {under_replicated_spells}
    UNION ALL
    SELECT pkey, log_offset, NULL, NULL, batch_base, cause_detail
    FROM {partition_changes}
    WHERE op = 'change' AND size(isr) < size(prev_isr)
        AND cause_code IN ('SESSION_EXPIRED', 'BROKER_REGISTERED', 'LOG_DIR_OFFLINE', 'BROKER_UNREGISTERED')
),
covered AS (
    SELECT
        log_offset, batch_base, cause_detail,
        last_value(to_offset) IGNORE NULLS OVER up_to_here AS to_offset,
        last_value(to_ts) IGNORE NULLS OVER up_to_here AS to_ts
    FROM spells_and_shrinks
    WINDOW up_to_here AS (
        PARTITION BY pkey ORDER BY log_offset, coalesce(batch_base, -1)
        ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    )
),
batches AS (
    SELECT
        batch_base, cause_detail, CAST(get_json_object(cause_detail, '$.broker_id') AS INT) AS broker_id,
        min(log_offset) AS log_offset,
        max(leaders_moved) AS leaders_moved, max(left_leaderless) AS left_leaderless, max(isr_shrinks) AS isr_shrinks,
        max(led_at) AS led_at, max(leaderless) AS leaderless, max(whole_at) AS whole_at, max(thin) AS thin
    FROM (
        SELECT
            batch_base, cause_detail, log_offset, leaders_moved, left_leaderless, isr_shrinks,
            CAST(NULL AS TIMESTAMP) AS led_at, 0 AS leaderless, CAST(NULL AS TIMESTAMP) AS whole_at, 0 AS thin
        FROM touched
        UNION ALL
        SELECT
            batch_base, cause_detail, NULL, NULL, NULL, NULL,
            to_ts, CASE WHEN lasting THEN 1 ELSE 0 END, NULL, 0
        FROM leaderless
        UNION ALL
        SELECT
            batch_base, cause_detail, NULL, NULL, NULL, NULL,
            NULL, 0,
            CASE WHEN to_offset < 9223372036854775807 THEN to_ts END,
            CASE WHEN to_offset < 9223372036854775807 THEN 0 ELSE 1 END
        FROM covered
        WHERE batch_base IS NOT NULL AND to_offset > log_offset
    )
    GROUP BY batch_base, cause_detail
),
assigned AS (
    -- A broker is fenced by the last record of its parts: what it lost stands before it. Without a later fencing, it was lost
    -- behind the last one.
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
    FROM (
        SELECT
            broker_id, log_offset, CAST(NULL AS BIGINT) AS fenced_at,
            leaders_moved, left_leaderless, isr_shrinks, led_at, leaderless, whole_at, thin
        FROM batches
        UNION ALL
        SELECT broker_id, log_offset, log_offset, 0, 0, 0, NULL, 0, NULL, 0 FROM fenced
    )
),
lost AS (
    SELECT
        broker_id, lost_at,
        CAST(sum(leaders_moved) AS BIGINT) AS leaders_moved,
        CAST(sum(left_leaderless) AS BIGINT) AS left_leaderless,
        CAST(sum(isr_shrinks) AS BIGINT) AS isr_shrinks,
        max(led_at) AS led_at, max(leaderless) AS leaderless, max(whole_at) AS whole_at, max(thin) AS thin
    FROM assigned
    WHERE lost_at IS NOT NULL
    GROUP BY broker_id, lost_at
),
found AS (
    SELECT
        f.log_offset AS from_offset, f.ts AS from_ts, 'broker' AS trigger, f.broker_id AS node_id, f.verdict,
        l.leaders_moved, l.left_leaderless, l.isr_shrinks,
        greatest(0, coalesce(
            CASE WHEN l.leaderless = 1 THEN {end_ms} ELSE unix_millis(l.led_at) END - unix_millis(f.ts), 0
        )) AS leaderless_ms,
        CASE WHEN l.thin = 1 THEN NULL
            ELSE greatest(0, coalesce(unix_millis(l.whole_at) - unix_millis(f.ts), 0)) END AS whole_isr_ms,
        CAST(NULL AS BIGINT) AS write_gap_at_most_ms,
        CASE WHEN f.verdict = 'removed' OR (
                coalesce(r.ts, f.back_ts) IS NOT NULL AND l.leaderless + l.thin = 0
            ) THEN greatest(coalesce(r.ts, f.back_ts, f.ts), coalesce(l.led_at, f.ts), coalesce(l.whole_at, f.ts)) END AS to_ts
    -- Each fencing is lost_at of itself.
    FROM fenced f JOIN lost l ON f.broker_id = l.broker_id AND f.log_offset = l.lost_at
    LEFT JOIN removed r ON f.log_offset = r.log_offset
    UNION ALL
    SELECT
        first_offset, ts, 'controller', controller_id, kind, 0, 0, 0, 0, 0, silent_ms, ts
    FROM {controller_takeovers}
    WHERE kind <> 'founded'
),
timed AS (
    SELECT
        *,
        unix_millis(from_ts) AS begin_ms,
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
    leaderless_ms, whole_isr_ms, write_gap_at_most_ms, to_ts,
    CASE WHEN trigger = 'broker' THEN greatest(0, finish_ms - begin_ms) END AS duration_ms
FROM chained
ORDER BY incident, from_offset
