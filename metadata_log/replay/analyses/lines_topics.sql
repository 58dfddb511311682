-- One line of text per entity, the digest's input. Free text as hex of its UTF-8, uuids as 32 hex digits, lists
-- joined by commas, booleans as 0 and 1, null as nothing.
SELECT
    CASE type WHEN 2 THEN 't|' ELSE 'd|' END
    || lower(hex(unbase64(translate(topic_id, '-_', '+/') || '=='))) || '|' || lower(hex(topic_name))
    || CASE type WHEN 2 THEN '' ELSE
        '|' || deleted_at_ms || '|' || grace_ms || '|' || array_join(
            transform(kept_configs, c -> lower(hex(c.name)) || ':' || lower(hex(c.value))), ','
        )
    END AS line
FROM {rows}
