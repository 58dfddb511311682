-- One line of text per entity, the digest's input. Free text as hex of its UTF-8; the name of a default is empty.
SELECT
    'u|' || array_join(
        transform(quota_entity, e -> lower(hex(e.entity_type)) || ':' || lower(hex(coalesce(e.entity_name, '')))),
        ','
    )
    || '|' || lower(hex(quota_key)) || '|' || quota_value AS line
FROM {rows}
