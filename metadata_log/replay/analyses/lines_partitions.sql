-- One line of text per entity, the digest's input. Free text as hex of its UTF-8, uuids as 32 hex digits, lists
-- joined by commas, booleans as 0 and 1, null as nothing.
SELECT
    'p|' || lower(hex(unbase64(translate(topic_id, '-_', '+/') || '==')))
    || '|' || partition || '|' || leader || '|' || leader_epoch || '|' || partition_epoch
    || '|' || leader_recovery_state
    || '|' || array_join(replicas, ',') || '|' || array_join(isr, ',')
    || '|' || array_join(adding_replicas, ',') || '|' || array_join(removing_replicas, ',')
    || '|' || array_join(eligible_leader_replicas, ',') || '|' || array_join(last_known_elr, ',')
    || '|' || array_join(
        transform(directories, d -> lower(hex(unbase64(translate(d, '-_', '+/') || '==')))), ','
    ) AS line
FROM {rows}
