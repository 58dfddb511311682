-- One line of text per entity, the digest's input. Free text as hex of its UTF-8, lists joined by commas.
SELECT
    'k|' || lower(hex(token_id)) || '|' || lower(hex(token_owner)) || '|' || lower(hex(token_requester))
    || '|' || array_join(transform(token_renewers, r -> lower(hex(r))), ',')
    || '|' || token_issued_ms || '|' || token_max_ms || '|' || token_expires_ms AS line
FROM {rows}
