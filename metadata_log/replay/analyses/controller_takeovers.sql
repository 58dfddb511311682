-- Claims of controllers: which controller took over from which, why, and how long nothing had been written. founded: the first
-- of all. voters: a change of voters had just been written, after which a new leadership begins. again: the same controller
-- claimed once more. restart: its
-- process and that of the former one are both new: all were stopped, or ended, and started. stopped: the former one's process
-- ended, and had handed over first: the claim says so, or (of older releases, and of Kafka) the next was elected sooner than
-- the followers miss a silent controller.
-- crash: the former one's process ended; another process of it registered within 10 minutes. handover: its
-- process lived on: it registered or claimed again later, so it had handed over, or lost its majority; or the claim says that
-- it had handed over, and no later record shows that its process ended. unknown: no record shows which of these it was; the
-- former one may be dead.
-- columns:
-- controller_epoch, controller_id
--   former_id INT: who was in charge before; null where the log does not say
--   kind STRING: founded, voters, again, restart, stopped, crash, handover or unknown
--   first_offset BIGINT: the offset of the claim
-- ts
--   silent_ms BIGINT: how long nothing had been written before the claim; the gap in which nothing could be written is at
--       most this, as the log may have been idle first; null for the founder's claim, and where a clock stepped there
--   tenure_ms BIGINT: how long this controller is known to have been in charge
--   unknown_ms BIGINT: time beside, before the next claim, of which the log proves nothing
--   clock_stepped BOOLEAN: a clock stepped in that silence or since, so that more or less time may have passed
--   record_count BIGINT: records that it wrote, its claim among them
--   lasting BOOLEAN: no controller took over up to the end
WITH claimed AS (
    SELECT
        r.controller_epoch, r.controller_id, r.log_offset AS first_offset, r.ts,
        coalesce(r.cause_detail, '') LIKE '%"handed_over"%' AS is_handed_over,
        c.known_ms AS at_known, c.unknown_ms AS at_unknown, c.steps AS at_steps,
        c.gap_known_ms, c.gap_unknown_ms, c.gap_steps,
        lag(r.controller_id) OVER (ORDER BY r.log_offset) AS former_id,
        row_number() OVER (ORDER BY r.log_offset) = 1 AS is_first,
        lead(r.log_offset) OVER (ORDER BY r.log_offset) AS to_offset,
        lead(c.known_ms) OVER (ORDER BY r.log_offset) AS to_known,
        lead(c.unknown_ms) OVER (ORDER BY r.log_offset) AS to_unknown,
        lead(c.steps) OVER (ORDER BY r.log_offset) AS to_steps
    FROM {records} r JOIN {clock} c ON r.batch_base = c.batch_base
    WHERE r.type = 1000
),
-- The record before each claim, found among all by the few claims: joined to them as it is, the whole log would be what Spark
-- broadcasts, since it goes by the size of two columns in compressed files. A record of Kafka's may be several rows.
before AS (
    SELECT log_offset, max(controller_id) AS controller_id
    FROM {records}
    WHERE log_offset IN (SELECT first_offset - 1 FROM claimed)
    GROUP BY log_offset
),
claims AS ( -- kept
    SELECT
        c.controller_epoch, c.controller_id, c.first_offset, c.ts, c.at_known, c.at_unknown, c.at_steps,
        c.gap_known_ms, c.gap_unknown_ms, c.gap_steps, c.to_offset, c.to_known, c.to_unknown, c.to_steps, c.is_handed_over,
        -- Releases 3.3 of Kafka write the founder's first batch before its claim.
        c.is_first AND {from_offset} = 0 AS is_founding, p.log_offset IS NOT NULL AS is_behind,
        coalesce(c.former_id, p.controller_id) AS former_id
    FROM claimed c LEFT JOIN before p ON p.log_offset = c.first_offset - 1
),
starts AS ( -- kept
    SELECT
        node_id, log_offset, ts, incarnation_id,
        lag(incarnation_id) OVER (PARTITION BY node_id ORDER BY log_offset) AS prev_incarnation
    FROM (
        SELECT node_id, log_offset, ts, incarnation_id FROM {records} WHERE type = 27
        UNION ALL
        SELECT node_id, log_offset, ts, incarnation_id FROM {initial} WHERE type = 27
    )
),
-- What the former controller's registrations tell: whether it had registered before the claim, and its first one behind it.
-- process: 1 the same as before, 2 another, 0 not known.
registered AS (
    SELECT
        c.first_offset,
        max(CASE WHEN s.log_offset < c.first_offset THEN 1 ELSE 0 END) AS was_known,
        min(CASE WHEN s.log_offset > c.first_offset THEN s.log_offset END) AS registered_at,
        min_by(
            CASE WHEN s.prev_incarnation IS NULL THEN 0 WHEN s.incarnation_id = s.prev_incarnation THEN 1 ELSE 2 END,
            CASE WHEN s.log_offset > c.first_offset THEN s.log_offset END
        ) AS process,
        min_by(
            unix_millis(s.ts) - unix_millis(c.ts), CASE WHEN s.log_offset > c.first_offset THEN s.log_offset END
        ) AS after_ms
    FROM claims c JOIN starts s ON s.node_id = c.former_id
    GROUP BY c.first_offset
),
-- Where its next time in charge ended. A process that claims before it is registered registers within that time.
reclaimed AS (
    SELECT c.first_offset, min(coalesce(n.to_offset, {end_offset})) AS until_offset
    FROM claims c JOIN claims n ON n.controller_id = c.former_id AND n.first_offset > c.first_offset
    GROUP BY c.first_offset
),
-- Whether the process that took over was new, as its first registration after the claim shows, in its time in charge.
begun AS (
    SELECT
        c.first_offset,
        min_by(
            CASE WHEN s.prev_incarnation IS NOT NULL AND s.incarnation_id <> s.prev_incarnation THEN 1 ELSE 0 END, s.log_offset
        ) AS is_new
    FROM claims c JOIN starts s ON s.node_id = c.controller_id
    WHERE s.log_offset > c.first_offset AND s.log_offset < coalesce(c.to_offset, {end_offset})
    GROUP BY c.first_offset
),
voted AS (
    -- A claim of Kafka's may name the voters itself; that is no change of voters.
    SELECT DISTINCT batch_last_offset FROM {records} WHERE type = 1005 AND coalesce(cause_code, '') <> 'TOLD_BY_ANOTHER'
)
SELECT
    c.controller_epoch, c.controller_id, c.former_id,
    CASE
        WHEN c.is_founding THEN 'founded'
        WHEN v.batch_last_offset IS NOT NULL THEN 'voters'
        WHEN c.controller_id = c.former_id THEN 'again'
        WHEN r.registered_at < coalesce(x.until_offset, {end_offset}) THEN CASE
            WHEN r.process = 1 THEN 'handover'
            WHEN r.process = 2 AND b.is_new = 1 THEN 'restart'
            WHEN r.process = 2 AND c.is_handed_over THEN 'stopped'
            WHEN r.process = 2 AND c.gap_known_ms + c.gap_unknown_ms < {missed_after_ms} AND c.gap_steps = 0 THEN 'stopped'
            WHEN r.process = 2 AND r.after_ms <= 600000 THEN 'crash'
            ELSE 'unknown'
        END
        WHEN x.until_offset IS NOT NULL AND r.was_known = 1 THEN 'handover'
        WHEN c.is_handed_over THEN 'handover'
        ELSE 'unknown'
    END AS kind,
    c.first_offset, c.ts,
    CASE WHEN c.is_behind AND NOT c.is_founding AND c.gap_steps = 0 THEN c.gap_known_ms + c.gap_unknown_ms END AS silent_ms,
    coalesce(c.to_known, {end_known_ms}) - c.at_known AS tenure_ms,
    coalesce(c.to_unknown, {end_unknown_ms}) - c.at_unknown AS unknown_ms,
    c.gap_steps > 0 OR coalesce(c.to_steps, {end_steps}) > c.at_steps AS clock_stepped,
    coalesce(c.to_offset, {end_offset}) - c.first_offset AS record_count,
    c.to_offset IS NULL AS lasting
FROM claims c
LEFT JOIN voted v ON v.batch_last_offset = c.first_offset - 1
LEFT JOIN registered r ON r.first_offset = c.first_offset
LEFT JOIN reclaimed x ON x.first_offset = c.first_offset
LEFT JOIN begun b ON b.first_offset = c.first_offset
ORDER BY c.first_offset
