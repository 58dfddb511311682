-- Claims of controllers: who took over from whom, how it came, and how long nothing had been written. founded: the first of
-- all. voters: a change of voters had just been written, behind which leadership begins anew. again: the same controller
-- claimed once more. crash: the former one's process ended; another process of it registered within 10 minutes. handover: its
-- process lived on: it registered or claimed again later, so it had handed over, or lost its majority. unknown: no later
-- record shows which of the two it was; the former one may be dead.
-- columns:
-- controller_epoch, controller_id
--   former_id INT: who was in charge before; null where the log does not say
--   kind STRING: founded, voters, again, crash, handover or unknown
--   first_offset BIGINT: the offset of the claim
-- ts
--   silent_ms BIGINT: how long nothing had been written before the claim; the gap in which nothing could be written is at
--       most this, as the log may have been idle first; null for the first batch of all
--   tenure_ms BIGINT: how long this controller was in charge
--   record_count BIGINT: records that it wrote, its claim among them
--   lasting BOOLEAN: nobody took over up to the end
WITH claimed AS (
    SELECT
        controller_epoch, controller_id, log_offset AS first_offset, ts,
        lag(controller_id) OVER (ORDER BY log_offset) AS former_id,
        lead(log_offset) OVER (ORDER BY log_offset) AS to_offset,
        lead(ts) OVER (ORDER BY log_offset) AS to_ts
    FROM {records}
    WHERE type = 1000
),
-- The record before each claim, found among all by the few claims: joined to them as it is, the whole log would be what Spark
-- broadcasts, since it goes by the size of two columns in compressed files. Kafka's may stand for several rows.
before AS (
    SELECT log_offset, max(ts) AS ts, max(controller_id) AS controller_id
    FROM {records}
    WHERE log_offset IN (SELECT first_offset - 1 FROM claimed)
    GROUP BY log_offset
),
claims AS (
    SELECT
        c.controller_epoch, c.controller_id, c.first_offset, c.ts, c.to_offset, c.to_ts, p.ts AS before_ts,
        coalesce(c.former_id, p.controller_id) AS former_id
    FROM claimed c LEFT JOIN before p ON p.log_offset = c.first_offset - 1
),
starts AS (
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
voted AS (
    SELECT DISTINCT batch_last_offset FROM {records} WHERE type = 1005
)
SELECT
    c.controller_epoch, c.controller_id, c.former_id,
    CASE
        WHEN c.first_offset = 0 THEN 'founded'
        WHEN v.batch_last_offset IS NOT NULL THEN 'voters'
        WHEN c.controller_id = c.former_id THEN 'again'
        WHEN r.registered_at < coalesce(x.until_offset, {end_offset}) THEN CASE
            WHEN r.process = 1 THEN 'handover'
            WHEN r.process = 2 AND r.after_ms <= 600000 THEN 'crash'
            ELSE 'unknown'
        END
        WHEN x.until_offset IS NOT NULL AND r.was_known = 1 THEN 'handover'
        ELSE 'unknown'
    END AS kind,
    c.first_offset, c.ts,
    CASE WHEN c.before_ts IS NOT NULL THEN greatest(0, unix_millis(c.ts) - unix_millis(c.before_ts)) END AS silent_ms,
    greatest(0, coalesce(unix_millis(c.to_ts), {end_ms}) - unix_millis(c.ts)) AS tenure_ms,
    coalesce(c.to_offset, {end_offset}) - c.first_offset AS record_count,
    c.to_offset IS NULL AS lasting
FROM claims c
LEFT JOIN voted v ON v.batch_last_offset = c.first_offset - 1
LEFT JOIN registered r ON r.first_offset = c.first_offset
LEFT JOIN reclaimed x ON x.first_offset = c.first_offset
ORDER BY c.first_offset
