-- One line of text per entity, the digest's input. Free text as hex of its UTF-8, uuids as 32 hex digits, lists
-- joined by commas, booleans as 0 and 1, null as nothing.
SELECT
    't|' || lower(hex(unbase64(translate(topic_id, '-_', '+/') || '=='))) || '|' || lower(hex(topic_name)) AS line
FROM {rows}
