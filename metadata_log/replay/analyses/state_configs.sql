-- The settings in force. A topic's settings belong to the topic of that name that lives: those told before it
-- was created were of another one.
-- columns:
-- type, type_name, log_offset, ts, resource_type, resource_name, config_name, config_value
WITH newest AS (
    SELECT
        *,
        row_number() OVER (
            PARTITION BY resource_type, resource_name, config_name ORDER BY log_offset DESC
        ) AS age
    FROM {records}
    WHERE type = 4
)
SELECT
    c.type, c.type_name, c.log_offset, c.ts,
    c.resource_type, c.resource_name, c.config_name, c.config_value
FROM newest c LEFT JOIN {topics} t ON c.resource_type = 2 AND c.resource_name = t.topic_name AND t.type = 2
WHERE c.age = 1 AND c.config_value IS NOT NULL
    AND (c.resource_type <> 2 OR c.log_offset > t.log_offset)
