-- Elections of each topic by cause, and how they went. lost: no replica could lead; unclean: the new leader was not in sync;
-- preferred: asked for, or balanced; clean: any other, by a member of the ISR or an eligible leader replica.
-- columns:
-- topic_name, topic_id, cause_code
--   kind STRING: lost, unclean, preferred or clean
--   elections BIGINT: how many
WITH held AS (
    SELECT
        topic_name,
        topic_id,
        coalesce(cause_code, '') AS cause_code,
        CASE
            WHEN leader = -1 THEN 'lost'
            WHEN leader_recovery_state = 1 AND NOT array_contains(prev_isr, leader) THEN 'unclean'
            WHEN cause_code IN ('LEADERS_BALANCED', 'PREFERRED_ELECTION_REQUESTED', 'PREFERRED_ELECTION') THEN 'preferred'
            ELSE 'clean'
        END AS kind
    FROM {partition_changes}
    WHERE op = 'change' AND changed % 2 = 1
)
SELECT topic_name, topic_id, cause_code, kind, count(*) AS elections
FROM held
GROUP BY topic_name, topic_id, cause_code, kind
ORDER BY topic_name, topic_id, cause_code, kind
