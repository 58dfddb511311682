-- One line of text per entity, the digest's input. Free text as hex of its UTF-8; secrets are the hex of their masks.
SELECT
    's|' || lower(hex(user_name)) || '|' || scram_mechanism || '|' || scram_salt || '|' || scram_stored_key
    || '|' || scram_server_key || '|' || scram_iterations AS line
FROM {rows}
