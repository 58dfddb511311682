"""Pure: the schemas of metadata records, of Apache Kafka 4.3.1; `python -m tests.kafka_schemas` writes it.

`schemas.py` says what a line means. Tests: tests/unit/metadata_log/kafka/test_records.py.
"""

from typing import Final

RECORDS: Final = """
0 RegisterBroker 0-4 flexible 0+
    broker_id int32 0+
    is_migrating_zk_broker bool 2+ default false
    incarnation_id uuid 0+
    broker_epoch int64 0+
    end_points []BrokerEndpoint 0+
        name string 0+
        host string 0+
        port uint16 0+
        security_protocol int16 0+
    features []BrokerFeature 0+
        name string 0+
        min_supported_version int16 0+
        max_supported_version int16 0+
    rack string 0+ nullable 0+
    fenced bool 0+ default true
    in_controlled_shutdown bool 1+ default false
    log_dirs []uuid 3+ tagged 3+ tag 0
    cordoned_log_dirs []uuid 4+ nullable 4+ tagged 4+ tag 1 default null
1 UnregisterBroker 0 flexible 0+
    broker_id int32 0+
    broker_epoch int64 0+
2 Topic 0 flexible 0+
    name string 0+
    topic_id uuid 0+
3 Partition 0-2 flexible 0+
    partition_id int32 0+ default -1
    topic_id uuid 0+
    replicas []int32 0+
    isr []int32 0+
    removing_replicas []int32 0+
    adding_replicas []int32 0+
    leader int32 0+ default -1
    leader_recovery_state int8 0+ tagged 0+ tag 0 default 0
    leader_epoch int32 0+ default -1
    partition_epoch int32 0+ default -1
    directories []uuid 1+
    eligible_leader_replicas []int32 2+ nullable 2+ tagged 2+ tag 1 default null
    last_known_elr []int32 2+ nullable 2+ tagged 2+ tag 2 default null
4 Config 0 flexible 0+
    resource_type int8 0+
    resource_name string 0+
    name string 0+
    value string 0+ nullable 0+
5 PartitionChange 0-2 flexible 0+
    partition_id int32 0+ default -1
    topic_id uuid 0+
    isr []int32 0+ nullable 0+ tagged 0+ tag 0 default null
    leader int32 0+ tagged 0+ tag 1 default -2
    replicas []int32 0+ nullable 0+ tagged 0+ tag 2 default null
    removing_replicas []int32 0+ nullable 0+ tagged 0+ tag 3 default null
    adding_replicas []int32 0+ nullable 0+ tagged 0+ tag 4 default null
    leader_recovery_state int8 0+ tagged 0+ tag 5 default -1
    directories []uuid 1+ nullable 1+ tagged 1+ tag 8 default null
    eligible_leader_replicas []int32 2+ nullable 2+ tagged 2+ tag 6 default null
    last_known_elr []int32 2+ nullable 2+ tagged 2+ tag 7 default null
7 FenceBroker 0 flexible 0+
    id int32 0+
    epoch int64 0+
8 UnfenceBroker 0 flexible 0+
    id int32 0+
    epoch int64 0+
9 RemoveTopic 0 flexible 0+
    topic_id uuid 0+
10 DelegationToken 0 flexible 0+
    owner string 0+
    requester string 0+
    renewers []string 0+
    issue_timestamp int64 0+
    max_timestamp int64 0+
    expiration_timestamp int64 0+
    token_id string 0+
11 UserScramCredential 0 flexible 0+
    name string 0+
    mechanism int8 0+
    salt bytes 0+
    stored_key bytes 0+
    server_key bytes 0+
    iterations int32 0+
12 FeatureLevel 0 flexible 0+
    name string 0+
    feature_level int16 0+
14 ClientQuota 0 flexible 0+
    entity []EntityData 0+
        entity_type string 0+
        entity_name string 0+ nullable 0+
    key string 0+
    value float64 0+
    remove bool 0+
15 ProducerIds 0 flexible 0+
    broker_id int32 0+
    broker_epoch int64 0+ default -1
    next_producer_id int64 0+
17 BrokerRegistrationChange 0-3 flexible 0+
    broker_id int32 0+
    broker_epoch int64 0+
    fenced int8 0+ tagged 0+ tag 0
    in_controlled_shutdown int8 1+ tagged 1+ tag 1
    log_dirs []uuid 2+ tagged 2+ tag 2
    cordoned_log_dirs []uuid 3+ nullable 3+ tagged 3+ tag 3 default null
18 AccessControlEntry 0 flexible 0+
    id uuid 0+
    resource_type int8 0+
    resource_name string 0+
    pattern_type int8 0+
    principal string 0+
    host string 0+
    operation int8 0+
    permission_type int8 0+
19 RemoveAccessControlEntry 0 flexible 0+
    id uuid 0+
20 NoOp 0 flexible 0+
21 ZkMigrationState 0 flexible 0+
    zk_migration_state int8 0+
22 RemoveUserScramCredential 0 flexible 0+
    name string 0+
    mechanism int8 0+
23 BeginTransaction 0 flexible 0+
    name string 0+ nullable 0+ tagged 0+ tag 0 default null
24 EndTransaction 0 flexible 0+
25 AbortTransaction 0 flexible 0+
    reason string 0+ nullable 0+ tagged 0+ tag 0 default null
26 RemoveDelegationToken 0 flexible 0+
    token_id string 0+
27 RegisterController 0 flexible 0+
    controller_id int32 0+
    incarnation_id uuid 0+
    zk_migration_ready bool 0+
    end_points []ControllerEndpoint 0+
        name string 0+
        host string 0+
        port uint16 0+
        security_protocol int16 0+
    features []ControllerFeature 0+
        name string 0+
        min_supported_version int16 0+
        max_supported_version int16 0+
28 ClearElr 0 flexible 0+
    topic_name string 0+
"""

CONTROL: Final = """
2 LeaderChange 0-1 flexible 0+
    version int16 0+
    leader_id int32 0+
    voters []Voter 0+
        voter_id int32 0+
        voter_directory_id uuid 1+
    granting_voters []Voter 0+
        voter_id int32 0+
        voter_directory_id uuid 1+
3 SnapshotHeader 0 flexible 0+
    version int16 0+
    last_contained_log_timestamp int64 0+
4 SnapshotFooter 0 flexible 0+
    version int16 0+
5 KRaftVersion 0 flexible 0+
    version int16 0+
    kraft_version int16 0+
6 KRaftVoters 0 flexible 0+
    version int16 0+
    voters []Voter 0+
        voter_id int32 0+
        voter_directory_id uuid 0+
        endpoints []Endpoint 0+
            name string 0+
            host string 0+
            port uint16 0+
        kraft_version_feature KRaftVersionFeature 0+
            min_supported_version int16 0+
            max_supported_version int16 0+
"""
