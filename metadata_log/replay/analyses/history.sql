-- What happened to each entity of the cluster, in words. Its key is topic:NAME/N, topic:NAME, broker:ID, controller:ID,
-- or cluster.
-- columns:
--   key STRING: the entity
-- log_offset, ts
--   what STRING: what happened to it, in words
-- cause_code
--   actor STRING: who asked for it, or which node decided it
SELECT
    'topic:' || topic_name || '/' || partition AS key, log_offset, ts,
    CASE op
        WHEN 'create' THEN 'created on ' || array_join(transform(replicas, b -> CAST(b AS STRING)), ',')
            || ', led by ' || leader
        WHEN 'delete' THEN 'deleted with its topic'
        WHEN 'restore' THEN 'restored with its topic'
        ELSE
            CASE WHEN changed % 2 = 1
                THEN 'leader ' || CASE WHEN prev_leader = -1 THEN 'nobody' ELSE CAST(prev_leader AS STRING) END
                    || ' -> ' || CASE WHEN leader = -1 THEN 'nobody' ELSE CAST(leader AS STRING) END || '; '
                ELSE '' END
            || CASE WHEN changed % 4 >= 2
                THEN 'ISR ' || array_join(transform(prev_isr, b -> CAST(b AS STRING)), ',')
                    || ' -> ' || array_join(transform(isr, b -> CAST(b AS STRING)), ',') || '; '
                ELSE '' END
            || CASE WHEN changed % 8 >= 4
                THEN 'replicas ' || array_join(transform(prev_replicas, b -> CAST(b AS STRING)), ',')
                    || ' -> ' || array_join(transform(replicas, b -> CAST(b AS STRING)), ',') || '; '
                ELSE '' END
            || CASE WHEN size(adding_replicas) + size(removing_replicas) > 0
                THEN 'adding ' || array_join(transform(adding_replicas, b -> CAST(b AS STRING)), ',')
                    || ' removing ' || array_join(transform(removing_replicas, b -> CAST(b AS STRING)), ',') || '; '
                WHEN changed >= 8 THEN 'no reassignment any more; '
                ELSE '' END
            || 'partition epoch ' || partition_epoch
    END AS what,
    cause_code, actor
FROM {partition_changes}
UNION ALL
SELECT
    'broker:' || broker_id, log_offset, ts,
    CASE op
        WHEN 'register' THEN 'registered process ' || incarnation_id || ' with epoch ' || broker_epoch || ': '
        WHEN 'unregister' THEN 'removed: '
        ELSE '' END
    || prev_state || ' -> ' || state,
    cause_code, actor
FROM {broker_changes}
UNION ALL
SELECT
    CASE
        WHEN type = 4 AND resource_type = 4 AND resource_name <> '' THEN 'broker:' || resource_name
        WHEN type = 4 AND resource_type = 2 THEN 'topic:' || resource_name
        WHEN type IN (2, 9, 1006, 1007) THEN 'topic:' || topic_name
        WHEN type = 1000 THEN 'controller:' || controller_id
        WHEN type IN (27, 1010) THEN 'controller:' || node_id
        ELSE 'cluster'
    END,
    log_offset, ts,
    CASE type
        WHEN 2 THEN 'created with id ' || topic_id
        WHEN 9 THEN 'removed'
        WHEN 1006 THEN 'deleted; it can be restored'
        WHEN 1007 THEN 'restored'
        WHEN 4 THEN CASE WHEN resource_type IN (2, 4) THEN '' ELSE resource_name || ': ' END || config_name || coalesce(' = ' || config_value, ' removed')
        WHEN 12 THEN 'feature ' || feature_name || ' finalized at ' || feature_level
        WHEN 15 THEN 'producer ids below ' || next_producer_id || ' given out'
        WHEN 27 THEN 'registered process ' || incarnation_id
        WHEN 1000 THEN 'took over with epoch ' || controller_epoch
        WHEN 1004 THEN 'quorum version ' || kraft_version
        WHEN 1005 THEN 'voters ' || array_join(transform(voters, v -> CAST(v.id AS STRING)), ',')
        ELSE 'removed'
    END,
    cause_code, actor
FROM {records}
WHERE type IN (2, 4, 9, 12, 15, 27, 1000, 1004, 1005, 1006, 1007, 1010)
