-- One line of text per entity, the digest's input. Free text as hex of its UTF-8, uuids as 32 hex digits, lists
-- joined by commas, booleans as 0 and 1, null as nothing.
SELECT
    'c|' || resource_type || '|' || lower(hex(resource_name))
    || '|' || lower(hex(config_name)) || '|' || lower(hex(config_value)) AS line
FROM {rows}
