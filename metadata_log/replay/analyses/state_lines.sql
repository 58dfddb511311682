-- One line of text per entity, the digest's input. Free text as hex of its UTF-8, uuids as 32 hex digits, lists
-- joined by commas, booleans as 0 and 1, null as nothing.
SELECT
    'b|' || broker_id || '|' || broker_epoch
    || '|' || lower(hex(unbase64(translate(incarnation_id, '-_', '+/') || '==')))
    || '|' || CAST(fenced AS INT) || '|' || CAST(in_controlled_shutdown AS INT)
    || '|' || lower(hex(coalesce(rack, '')))
    || '|' || array_join(
        transform(
            endpoints,
            e -> lower(hex(e.name)) || ':' || lower(hex(e.host)) || ':' || e.port || ':' || e.security_protocol
        ),
        ','
    )
    || '|' || array_join(transform(features, f -> lower(hex(f.name)) || ':' || f.min || ':' || f.max), ',')
    || '|' || array_join(
        transform(log_dirs, d -> lower(hex(unbase64(translate(d, '-_', '+/') || '==')))), ','
    )
    || '|' || coalesce(
        array_join(
            transform(cordoned_log_dirs, d -> lower(hex(unbase64(translate(d, '-_', '+/') || '==')))), ','
        ),
        '-'
    ) AS line
FROM {brokers}
UNION ALL
SELECT
    't|' || lower(hex(unbase64(translate(topic_id, '-_', '+/') || '=='))) || '|' || lower(hex(topic_name))
FROM {topics}
UNION ALL
SELECT
    'p|' || lower(hex(unbase64(translate(topic_id, '-_', '+/') || '==')))
    || '|' || partition || '|' || leader || '|' || leader_epoch || '|' || partition_epoch
    || '|' || leader_recovery_state
    || '|' || array_join(replicas, ',') || '|' || array_join(isr, ',')
    || '|' || array_join(adding_replicas, ',') || '|' || array_join(removing_replicas, ',')
    || '|' || array_join(eligible_leader_replicas, ',') || '|' || array_join(last_known_elr, ',')
    || '|' || array_join(
        transform(directories, d -> lower(hex(unbase64(translate(d, '-_', '+/') || '==')))), ','
    )
FROM {partitions}
UNION ALL
SELECT
    'c|' || resource_type || '|' || lower(hex(resource_name))
    || '|' || lower(hex(config_name)) || '|' || lower(hex(config_value))
FROM {configs}
UNION ALL
SELECT
    CASE type
        WHEN 12 THEN 'f|' || lower(hex(feature_name)) || '|' || feature_level
        WHEN 15 THEN 'i|' || next_producer_id
        ELSE 'q|' || kraft_version
    END
FROM {cluster}
WHERE type IN (12, 15, 1004)
UNION ALL
SELECT
    'v|' || v.id || '|' || lower(hex(unbase64(translate(v.directory_id, '-_', '+/') || '==')))
    || '|' || array_join(
        transform(v.endpoints, e -> lower(hex(e.name)) || ':' || lower(hex(e.host)) || ':' || e.port), ','
    )
    || '|' || v.min || '|' || v.max
FROM (SELECT explode(voters) AS v FROM {cluster} WHERE type = 1005)
