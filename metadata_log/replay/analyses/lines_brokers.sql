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
FROM {rows}
