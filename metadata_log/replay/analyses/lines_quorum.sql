-- One line of text per entity, the digest's input. Free text as hex of its UTF-8, uuids as 32 hex digits, lists
-- joined by commas, booleans as 0 and 1, null as nothing. Voters without a directory, which a LeaderChange of Kafka's alone
-- names, have no line: checkpoints do not hold them.
SELECT
    CASE type
        WHEN 12 THEN 'f|' || lower(hex(feature_name)) || '|' || feature_level
        WHEN 15 THEN 'i|' || next_producer_id
        ELSE 'q|' || kraft_version
    END AS line
FROM {rows}
WHERE type IN (12, 15, 1004)
UNION ALL
SELECT
    'n|' || node_id || '|' || registration_epoch
    || '|' || lower(hex(unbase64(translate(incarnation_id, '-_', '+/') || '==')))
    || '|' || CAST(zk_migration_ready AS INT)
    || '|' || array_join(
        transform(
            endpoints,
            e -> lower(hex(e.name)) || ':' || lower(hex(e.host)) || ':' || e.port || ':' || e.security_protocol
        ),
        ','
    )
    || '|' || array_join(transform(features, f -> lower(hex(f.name)) || ':' || f.min || ':' || f.max), ',')
    AS line
FROM {rows}
WHERE type = 27
UNION ALL
SELECT
    'v|' || v.id || '|' || lower(hex(unbase64(translate(v.directory_id, '-_', '+/') || '==')))
    || '|' || array_join(
        transform(v.endpoints, e -> lower(hex(e.name)) || ':' || lower(hex(e.host)) || ':' || e.port), ','
    )
    || '|' || v.min || '|' || v.max
FROM (SELECT explode(voters) AS v FROM {rows} WHERE type = 1005)
WHERE v.directory_id <> 'AAAAAAAAAAAAAAAAAAAAAA'
