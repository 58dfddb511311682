-- Losses of brokers, takeovers of controllers, and all else that left partitions without a leader, each from its cause to its
-- recovery: the broker serves again, or is removed from the cluster, and every partition that it left without a leader, or with
-- a smaller ISR, has its leader and its whole ISR. A broker that stopped is among them where a partition lost its leader by it.
-- Those that overlap share a number, so that a long loss joins all that begin before it ends. A takeover is the moment of its
-- claim: since when nothing could be written, the log does not say. Each of leaderless_spells belongs to one incident.
-- columns:
--   incident BIGINT: their number, from 1
--   from_offset BIGINT: the record that began it
--   from_ts TIMESTAMP: when that was written
--   trigger STRING: broker; controller; partitions: they lost their leaders, and the log names no broker for it; before: they had
--       none when the log, or the part of it that is looked at, began
--   node_id INT: the broker that was lost, or the controller that took over; else null
--   verdict STRING: that of the fencing, or the kind of the takeover; disk: a log directory of a broker that goes on
--   leaders_moved BIGINT: partitions of which another broker became leader
--   left_leaderless BIGINT: partitions that lost their leader without another
--   isr_shrinks BIGINT: partitions that lost a replica in sync
--   leaderless_ms BIGINT: until the last of them had a leader, as far as known; 0: at once
--   partition_ms BIGINT: the time of all of them without a leader together, as far as known: that of leaderless_spells
--   partition_unknown_ms BIGINT: time beside, of which the log proves nothing
--   whole_isr_ms BIGINT: until the last of them had its whole ISR, as far as known; null: not yet
--   write_gap_at_most_ms BIGINT: silent_ms of the takeover, which counts the time in which the log was idle; null for brokers
--   to_ts TIMESTAMP: when all had recovered; null: not yet
--   duration_ms BIGINT: how long that is known to have taken, up to the end if it has not; null for takeovers
--   unknown_ms BIGINT: time beside, of which the log proves nothing
--   clock_stepped BOOLEAN: a clock stepped within it, so that more or less time may have passed
WITH fenced AS ( -- kept
    SELECT /*+ MERGE(b) */
        f.log_offset, f.ts, f.broker_id, f.verdict, f.back_offset, f.back_ts, f.clock_stepped,
        c.known_ms AS at_known, c.unknown_ms AS at_unknown,
        CASE WHEN f.back_offset IS NOT NULL THEN c.known_ms + f.duration_ms END AS back_known,
        CASE WHEN f.back_offset IS NOT NULL THEN c.unknown_ms + f.unknown_ms END AS back_unknown
    FROM {fencings} f
    JOIN (SELECT broker_id, log_offset, min(batch_base) AS batch_base FROM {broker_changes} GROUP BY broker_id, log_offset) b
        ON f.log_offset = b.log_offset AND f.broker_id = b.broker_id
    JOIN {clock} c ON b.batch_base = c.batch_base
),
-- An operator who removes a broker expects it no more: its loss ends there.
removed AS (
    SELECT f.log_offset, min(b.ts) AS ts, min(c.known_ms) AS at_known, min(c.unknown_ms) AS at_unknown
    FROM fenced f JOIN {broker_changes} b ON f.broker_id = b.broker_id JOIN {clock} c ON b.batch_base = c.batch_base
    WHERE b.op = 'unregister' AND b.log_offset >= f.log_offset AND (f.back_offset IS NULL OR b.log_offset < f.back_offset)
    GROUP BY f.log_offset
),
-- What each batch did because of a broker, or to partitions that it left without a leader. Spells are found by row, and then
-- only batches are left.
touched AS (
    SELECT
        batch_base, cause_code, cause_detail, min(log_offset) AS log_offset, min(ts) AS ts,
        count(CASE WHEN changed % 2 = 1 AND leader <> -1 THEN 1 END) AS leaders_moved,
        count(CASE WHEN op = 'change' AND changed % 2 = 1 AND leader = -1 THEN 1 END) AS left_leaderless,
        count(CASE WHEN size(isr) < size(prev_isr) THEN 1 END) AS isr_shrinks
    FROM {partition_changes}
    WHERE op <> 'delete' AND ((leader = -1 AND (changed % 2 = 1 OR op <> 'change')) OR (op = 'change' AND cause_code IN (
        'SESSION_EXPIRED', 'STOPPED_OR_SILENT', 'BROKER_REGISTERED', 'LOG_DIR_OFFLINE', 'BROKER_UNREGISTERED',
        'CONTROLLED_SHUTDOWN', 'SHUTDOWN_GRANTED', 'FENCE_REQUESTED'
    )))
    GROUP BY batch_base, cause_code, cause_detail
),
leaderless AS ( -- kept
    -- Both sides grow with the log, and Spark takes either for small.
    SELECT /*+ MERGE(c, s) */
        c.batch_base, c.cause_code, c.cause_detail, s.from_offset, s.from_ts, s.to_ts, s.duration_ms, s.unknown_ms, s.lasting,
        s.clock_stepped
    FROM {leaderless_spells} s LEFT JOIN (
        SELECT pkey, log_offset, batch_base, cause_code, cause_detail
        FROM {partition_changes}
        WHERE op <> 'delete' AND leader = -1
    ) c ON c.pkey = s.pkey AND c.log_offset = s.from_offset
),
-- Each shrink lies in the newest spell that began up to it, if that has not ended: found by a window, for a join by range
-- pairs every shrink of a partition with all of its spells.
thin AS (
    SELECT /*+ MERGE(c, s) */
        s.pkey, s.from_offset, s.to_offset, s.from_ts, s.to_ts,
        coalesce(k.known_ms, 0) + s.duration_ms AS to_known, coalesce(k.unknown_ms, 0) + s.unknown_ms AS to_unknown
    FROM {under_replicated_spells} s
    LEFT JOIN (SELECT pkey, log_offset, batch_base FROM {partition_changes} WHERE op <> 'delete') c
        ON c.pkey = s.pkey AND c.log_offset = s.from_offset
    LEFT JOIN {clock} k ON k.batch_base = c.batch_base
),
spells_and_shrinks AS (
    SELECT
        pkey, from_offset AS log_offset, coalesce(to_offset, 9223372036854775807) AS to_offset, coalesce(to_ts, from_ts) AS to_ts,
        to_known, to_unknown,
        CAST(NULL AS BIGINT) AS batch_base, CAST(NULL AS STRING) AS cause_code, CAST(NULL AS STRING) AS cause_detail
    FROM thin
    UNION ALL
    SELECT pkey, log_offset, NULL, NULL, NULL, NULL, batch_base, cause_code, cause_detail
    FROM {partition_changes}
    WHERE op = 'change' AND size(isr) < size(prev_isr) AND cause_code IN (
        'SESSION_EXPIRED', 'STOPPED_OR_SILENT', 'BROKER_REGISTERED', 'LOG_DIR_OFFLINE', 'BROKER_UNREGISTERED',
        'CONTROLLED_SHUTDOWN', 'SHUTDOWN_GRANTED', 'FENCE_REQUESTED'
    )
),
covered AS (
    SELECT
        log_offset, batch_base, cause_code, cause_detail,
        last_value(to_offset) IGNORE NULLS OVER up_to_here AS to_offset,
        last_value(to_ts) IGNORE NULLS OVER up_to_here AS to_ts,
        last_value(to_known) IGNORE NULLS OVER up_to_here AS to_known,
        last_value(to_unknown) IGNORE NULLS OVER up_to_here AS to_unknown
    FROM spells_and_shrinks
    WINDOW up_to_here AS (
        PARTITION BY pkey ORDER BY log_offset, coalesce(batch_base, -1)
        ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    )
),
batches AS (
    SELECT /*+ MERGE(l, w) */
        t.batch_base, t.cause_code, t.cause_detail,
        CASE WHEN t.cause_code IN (
            'SESSION_EXPIRED', 'STOPPED_OR_SILENT', 'BROKER_REGISTERED', 'LOG_DIR_OFFLINE', 'BROKER_UNREGISTERED',
            'CONTROLLED_SHUTDOWN', 'SHUTDOWN_GRANTED', 'FENCE_REQUESTED'
        ) THEN CAST(get_json_object(t.cause_detail, '$.broker_id') AS INT) END AS broker_id,
        t.log_offset, t.ts, k.known_ms AS at_known, k.unknown_ms AS at_unknown,
        t.leaders_moved, t.left_leaderless, t.isr_shrinks,
        k.known_ms + l.longest_ms AS led_known, k.unknown_ms + l.longest_unknown_ms AS led_unknown, l.led_at,
        coalesce(l.leaderless, 0) AS leaderless, coalesce(l.partition_ms, 0) AS partition_ms,
        coalesce(l.partition_unknown_ms, 0) AS partition_unknown_ms, coalesce(l.stepped, 0) AS stepped,
        w.whole_at, w.whole_known, w.whole_unknown, coalesce(w.thin, 0) AS thin
    FROM touched t
    JOIN {clock} k ON t.batch_base = k.batch_base
    LEFT JOIN (
        SELECT
            batch_base, cause_code, cause_detail,
            max(to_ts) AS led_at, max(duration_ms) AS longest_ms, max(unknown_ms) AS longest_unknown_ms,
            max(CASE WHEN lasting THEN 1 ELSE 0 END) AS leaderless,
            CAST(sum(duration_ms) AS BIGINT) AS partition_ms, CAST(sum(unknown_ms) AS BIGINT) AS partition_unknown_ms,
            max(CASE WHEN clock_stepped THEN 1 ELSE 0 END) AS stepped
        FROM leaderless
        WHERE batch_base IS NOT NULL
        GROUP BY batch_base, cause_code, cause_detail
    ) l ON t.batch_base = l.batch_base AND coalesce(t.cause_code, '') = coalesce(l.cause_code, '') AND coalesce(t.cause_detail, '') = coalesce(l.cause_detail, '')
    LEFT JOIN (
        SELECT
            batch_base, cause_code, cause_detail,
            max(CASE WHEN to_offset < 9223372036854775807 THEN to_ts END) AS whole_at,
            max(to_known) AS whole_known, max(to_unknown) AS whole_unknown,
            max(CASE WHEN to_offset < 9223372036854775807 THEN 0 ELSE 1 END) AS thin
        FROM covered
        WHERE batch_base IS NOT NULL AND to_offset > log_offset
        GROUP BY batch_base, cause_code, cause_detail
    ) w ON t.batch_base = w.batch_base AND coalesce(t.cause_code, '') = coalesce(w.cause_code, '') AND coalesce(t.cause_detail, '') = coalesce(w.cause_detail, '')
),
assigned AS (
    -- The last record of a fencing in parts fences the broker: the partitions that it lost come before that record. A broker
    -- that is out of service lost them after its last fencing. A log directory that fails does not fence.
    SELECT
        *,
        CASE
            WHEN fenced_at IS NOT NULL THEN fenced_at
            WHEN out_until > log_offset THEN last_fenced
            WHEN cause_code <> 'LOG_DIR_OFFLINE' THEN next_fenced
        END AS lost_at
    FROM (
        SELECT
            *,
            min(fenced_at) OVER (
                -- The rows from here on, backwards: Spark reads an unbounded following frame again for every row.
                PARTITION BY broker_id ORDER BY log_offset DESC ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
            ) AS next_fenced,
            max(fenced_at) OVER so_far AS last_fenced,
            last_value(CASE WHEN fenced_at IS NOT NULL THEN coalesce(back_offset, 9223372036854775807) END) IGNORE NULLS
                OVER so_far AS out_until
        FROM (
            SELECT
                broker_id, log_offset, CAST(NULL AS BIGINT) AS fenced_at, CAST(NULL AS BIGINT) AS back_offset,
                cause_code, leaders_moved, left_leaderless, isr_shrinks, led_at, led_known, led_unknown, leaderless,
                partition_ms, partition_unknown_ms, stepped, whole_at, whole_known, whole_unknown, thin,
                ts, at_known, at_unknown
            FROM batches
            UNION ALL
            SELECT
                broker_id, log_offset, log_offset, back_offset,
                NULL, 0, 0, 0, NULL, NULL, NULL, 0, 0, 0, 0, NULL, NULL, NULL, 0, ts, at_known, at_unknown
            FROM fenced
        )
        WINDOW so_far AS (PARTITION BY broker_id ORDER BY log_offset ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)
    )
),
lost AS ( -- kept
    -- What belongs to no fencing is an incident of its own, batch by batch.
    SELECT
        broker_id, lost_at, CASE WHEN lost_at IS NULL THEN log_offset END AS alone_at,
        min(log_offset) AS log_offset, min(ts) AS ts, min(at_known) AS at_known, min(at_unknown) AS at_unknown,
        max(cause_code) AS cause_code,
        CAST(sum(leaders_moved) AS BIGINT) AS leaders_moved,
        CAST(sum(left_leaderless) AS BIGINT) AS left_leaderless,
        CAST(sum(isr_shrinks) AS BIGINT) AS isr_shrinks,
        max(led_at) AS led_at, max(led_known) AS led_known, max(led_unknown) AS led_unknown, max(leaderless) AS leaderless,
        CAST(sum(partition_ms) AS BIGINT) AS partition_ms, CAST(sum(partition_unknown_ms) AS BIGINT) AS partition_unknown_ms,
        max(stepped) AS stepped,
        max(whole_at) AS whole_at, max(whole_known) AS whole_known, max(whole_unknown) AS whole_unknown, max(thin) AS thin
    FROM assigned
    GROUP BY broker_id, lost_at, CASE WHEN lost_at IS NULL THEN log_offset END
),
found AS (
    SELECT
        f.log_offset AS from_offset, f.ts AS from_ts, 'broker' AS trigger, f.broker_id AS node_id, f.verdict,
        l.leaders_moved, l.left_leaderless, l.isr_shrinks, l.partition_ms, l.partition_unknown_ms,
        f.at_known, f.at_unknown, l.led_known, l.whole_known, l.thin, CAST(NULL AS BIGINT) AS write_gap_at_most_ms,
        f.verdict = 'removed' OR (coalesce(r.ts, f.back_ts) IS NOT NULL AND l.leaderless + l.thin = 0) AS is_over,
        greatest(coalesce(r.ts, f.back_ts, f.ts), coalesce(l.led_at, f.ts), coalesce(l.whole_at, f.ts)) AS to_ts,
        greatest(
            coalesce(r.at_known, f.back_known, f.at_known), coalesce(l.led_known, 0), coalesce(l.whole_known, 0)
        ) AS to_known,
        greatest(
            coalesce(r.at_unknown, f.back_unknown, f.at_unknown), coalesce(l.led_unknown, 0), coalesce(l.whole_unknown, 0)
        ) AS to_unknown,
        f.clock_stepped OR l.stepped = 1 AS clock_stepped
    -- Each fencing is lost_at of itself.
    FROM fenced f JOIN lost l ON f.broker_id = l.broker_id AND f.log_offset = l.lost_at
    LEFT JOIN removed r ON f.log_offset = r.log_offset
    WHERE f.verdict <> 'stopped' OR l.left_leaderless + l.partition_ms + l.partition_unknown_ms > 0
    UNION ALL
    SELECT
        log_offset, ts, CASE WHEN broker_id IS NULL THEN 'partitions' ELSE 'broker' END, broker_id,
        CASE cause_code WHEN 'LOG_DIR_OFFLINE' THEN 'disk' WHEN 'CONTROLLED_SHUTDOWN' THEN 'stopped' ELSE 'unknown' END,
        leaders_moved, left_leaderless, isr_shrinks, partition_ms, partition_unknown_ms,
        at_known, at_unknown, led_known, whole_known, thin, NULL,
        leaderless + thin = 0, greatest(ts, coalesce(led_at, ts), coalesce(whole_at, ts)),
        greatest(at_known, coalesce(led_known, 0), coalesce(whole_known, 0)),
        greatest(at_unknown, coalesce(led_unknown, 0), coalesce(whole_unknown, 0)),
        stepped = 1
    FROM lost
    -- A topic that comes back has no leader before the election in the same batch.
    WHERE lost_at IS NULL AND (
        left_leaderless + partition_ms + partition_unknown_ms + leaderless > 0 OR cause_code = 'LOG_DIR_OFFLINE'
    )
    UNION ALL
    SELECT
        min(from_offset), min(from_ts), 'before', NULL, 'unknown', 0, count(*), 0,
        CAST(sum(duration_ms) AS BIGINT), CAST(sum(unknown_ms) AS BIGINT),
        0, 0, max(duration_ms), NULL, 0, NULL,
        max(CASE WHEN lasting THEN 1 ELSE 0 END) = 0, max(to_ts), max(duration_ms), max(unknown_ms),
        max(CASE WHEN clock_stepped THEN 1 ELSE 0 END) = 1
    FROM leaderless
    WHERE batch_base IS NULL
    HAVING count(*) > 0
    UNION ALL
    SELECT
        t.first_offset, t.ts, 'controller', t.controller_id, t.kind, 0, 0, 0, 0, 0,
        c.known_ms, c.unknown_ms, NULL, NULL, 0, t.silent_ms, true, t.ts, c.known_ms, c.unknown_ms, t.silent_ms IS NULL
    FROM {controller_takeovers} t JOIN {clock} c ON t.first_offset = c.batch_base
    WHERE t.kind <> 'founded'
),
timed AS (
    SELECT
        *,
        at_known + at_unknown AS begin_ms,
        CASE WHEN is_over THEN to_known ELSE {end_known_ms} END AS finish_known,
        CASE WHEN is_over THEN to_unknown ELSE {end_unknown_ms} END AS finish_unknown
    FROM found
),
chained AS (
    SELECT
        *,
        max(finish_known + finish_unknown) OVER (
            ORDER BY begin_ms, from_offset ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS busy_until_ms
    FROM timed
)
SELECT
    CAST(sum(CASE WHEN busy_until_ms >= begin_ms THEN 0 ELSE 1 END) OVER (
        ORDER BY begin_ms, from_offset ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS BIGINT) AS incident,
    from_offset, from_ts, trigger, node_id, verdict, leaders_moved, left_leaderless, isr_shrinks,
    greatest(0, coalesce(led_known - at_known, 0)) AS leaderless_ms, partition_ms, partition_unknown_ms,
    CASE WHEN thin = 1 THEN NULL ELSE greatest(0, coalesce(whole_known - at_known, 0)) END AS whole_isr_ms,
    write_gap_at_most_ms,
    CASE WHEN is_over THEN to_ts END AS to_ts,
    CASE WHEN trigger <> 'controller' THEN greatest(0, finish_known - at_known) END AS duration_ms,
    CASE WHEN trigger <> 'controller' THEN greatest(0, finish_unknown - at_unknown) END AS unknown_ms,
    clock_stepped
FROM chained
ORDER BY incident, from_offset
