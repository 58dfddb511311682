-- One line of text per entity, the digest's input. Free text as hex of its UTF-8, uuids as 32 hex digits, lists
-- joined by commas, booleans as 0 and 1, null as nothing.
SELECT
    'a|' || lower(hex(unbase64(translate(acl_id, '-_', '+/') || '==')))
    || '|' || resource_type || '|' || lower(hex(resource_name)) || '|' || pattern_type
    || '|' || lower(hex(principal)) || '|' || lower(hex(host)) || '|' || acl_operation || '|' || permission_type AS line
FROM {rows}
