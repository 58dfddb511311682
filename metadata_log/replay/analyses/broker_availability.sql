-- How much of the time each broker served: the time in which it was registered, or gone without having been removed.
-- columns:
-- broker_id
--   known_ms BIGINT: the time that counts and is known
--   unknown_ms BIGINT: time beside, of which the log proves nothing: no controller is known to have been there
--   serving_ms BIGINT: of the known time, online or stopping
--   availability_percent DOUBLE: serving_ms in percent of known_ms; null where none is known
--   outages BIGINT: spells in which it did not serve, after it had served, or from before the part that is looked at
--   longest_outage_ms BIGINT: the longest of them, as far as it is known; 0 without one
--   clock_stepped BOOLEAN: a clock stepped within it, so that more or less time may have passed
--   processes BIGINT: starts of its process
--   state STRING: its state at the end
WITH ordered AS (
    SELECT
        *,
        state IN ('ONLINE', 'STOPPING') AS serves,
        NOT (state = 'OFFLINE' AND coalesce(cause_code, '') = 'BROKER_UNREGISTERED') AS counts
    FROM {broker_state_intervals}
),
followed AS (
    SELECT
        *,
        coalesce(lag(serves) OVER known, true) <> serves AS turns,
        coalesce(lag(serves) OVER known, false) AS served
    FROM ordered
    WINDOW known AS (PARTITION BY broker_id ORDER BY from_offset)
),
spells AS ( -- kept
    SELECT
        *,
        sum(CASE WHEN turns THEN 1 ELSE 0 END)
            OVER (PARTITION BY broker_id ORDER BY from_offset ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS spell,
        max(CASE WHEN serves OR from_offset < {from_offset} THEN 1 ELSE 0 END)
            OVER (PARTITION BY broker_id ORDER BY from_offset ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS ever
    FROM followed
),
outages AS (
    SELECT broker_id, spell, sum(duration_ms) AS lost_ms
    FROM spells
    WHERE counts AND NOT serves AND ever = 1
    GROUP BY broker_id, spell
),
worst AS (
    SELECT broker_id, count(*) AS outages, CAST(max(lost_ms) AS BIGINT) AS longest_outage_ms
    FROM outages
    GROUP BY broker_id
),
summed AS (
    SELECT
        broker_id,
        CAST(sum(CASE WHEN counts THEN duration_ms ELSE 0 END) AS BIGINT) AS known_ms,
        CAST(sum(CASE WHEN counts THEN unknown_ms ELSE 0 END) AS BIGINT) AS unknown_ms,
        max(CASE WHEN counts AND clock_stepped THEN 1 ELSE 0 END) = 1 AS clock_stepped,
        CAST(sum(CASE WHEN serves THEN duration_ms ELSE 0 END) AS BIGINT) AS serving_ms,
        count(DISTINCT incarnation_id) AS processes,
        max_by(state, from_offset) AS state
    FROM spells
    GROUP BY broker_id
)
SELECT
    s.broker_id, s.known_ms, s.unknown_ms, s.serving_ms,
    CASE WHEN s.known_ms > 0 THEN round(CAST(100 AS DOUBLE) * s.serving_ms / s.known_ms, 4) END AS availability_percent,
    coalesce(w.outages, 0) AS outages, coalesce(w.longest_outage_ms, 0) AS longest_outage_ms,
    s.clock_stepped, s.processes, s.state
FROM summed s LEFT JOIN worst w ON s.broker_id = w.broker_id
ORDER BY s.broker_id
