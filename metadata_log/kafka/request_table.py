"""Pure: the schemas of requests to a controller, of Apache Kafka 4.3.1; `python -m tests.kafka_schemas` writes it.

`schemas.py` says what a line means. Tests: tests/unit/metadata_log/kafka/test_messages.py.
"""

from typing import Final

HEADER: Final = """
0 RequestHeader 1-2 flexible 2+
    request_api_key int16 0+
    request_api_version int16 0+
    correlation_id int32 0+
    client_id string 1+ nullable 1+ flexible none
"""

PRINCIPAL: Final = """
0 DefaultPrincipalData 0 flexible 0+
    type string 0+
    name string 0+
    token_authenticated bool 0+
"""

REQUESTS: Final = """
1 Fetch 4-18 flexible 12+
    cluster_id string 12+ nullable 12+ tagged 12+ tag 0 default null ignorable yes
    replica_id int32 0-14 default -1
    replica_state ReplicaState 15+ tagged 15+ tag 1
        replica_id int32 15+ default -1
        replica_epoch int64 15+ default -1
    max_wait_ms int32 0+
    min_bytes int32 0+
    max_bytes int32 3+ default 0x7fffffff ignorable yes
    isolation_level int8 4+ default 0 ignorable yes
    session_id int32 7+ default 0 ignorable yes
    session_epoch int32 7+ default -1 ignorable yes
    topics []FetchTopic 0+
        topic string 0-12 ignorable yes
        topic_id uuid 13+ ignorable yes
        partitions []FetchPartition 0+
            partition int32 0+
            current_leader_epoch int32 9+ default -1 ignorable yes
            fetch_offset int64 0+
            last_fetched_epoch int32 12+ default -1
            log_start_offset int64 5+ default -1 ignorable yes
            partition_max_bytes int32 0+
            replica_directory_id uuid 17+ tagged 17+ tag 0 ignorable yes
            high_watermark int64 18+ tagged 18+ tag 1 default 9223372036854775807 ignorable yes
    forgotten_topics_data []ForgottenTopic 7+
        topic string 7-12 ignorable yes
        topic_id uuid 13+ ignorable yes
        partitions []int32 7+
    rack_id string 11+ ignorable yes
17 SaslHandshake 0-1 flexible none
    mechanism string 0+
18 ApiVersions 0-4 flexible 3+
    client_software_name string 3+ ignorable yes
    client_software_version string 3+ ignorable yes
19 CreateTopics 2-7 flexible 5+
    topics []CreatableTopic 0+
        name string 0+
        num_partitions int32 0+
        replication_factor int16 0+
        assignments []CreatableReplicaAssignment 0+
            partition_index int32 0+
            broker_ids []int32 0+
        configs []CreatableTopicConfig 0+
            name string 0+
            value string 0+ nullable 0+
    timeout_ms int32 0+ default 60000
    validate_only bool 1+ default false
20 DeleteTopics 1-6 flexible 4+
    topics []DeleteTopicState 6+
        name string 6+ nullable 6+ default null
        topic_id uuid 6+
    topic_names []string 0-5 ignorable yes
    timeout_ms int32 0+
29 DescribeAcls 1-3 flexible 2+
    resource_type_filter int8 0+
    resource_name_filter string 0+ nullable 0+
    pattern_type_filter int8 1+ default 3
    principal_filter string 0+ nullable 0+
    host_filter string 0+ nullable 0+
    operation int8 0+
    permission_type int8 0+
30 CreateAcls 1-3 flexible 2+
    creations []AclCreation 0+
        resource_type int8 0+
        resource_name string 0+
        resource_pattern_type int8 1+ default 3
        principal string 0+
        host string 0+
        operation int8 0+
        permission_type int8 0+
31 DeleteAcls 1-3 flexible 2+
    filters []DeleteAclsFilter 0+
        resource_type_filter int8 0+
        resource_name_filter string 0+ nullable 0+
        pattern_type_filter int8 1+ default 3
        principal_filter string 0+ nullable 0+
        host_filter string 0+ nullable 0+
        operation int8 0+
        permission_type int8 0+
32 DescribeConfigs 1-4 flexible 4+
    resources []DescribeConfigsResource 0+
        resource_type int8 0+
        resource_name string 0+
        configuration_keys []string 0+ nullable 0+
    include_synonyms bool 1+ default false
    include_documentation bool 3+ default false
33 AlterConfigs 0-2 flexible 2+
    resources []AlterConfigsResource 0+
        resource_type int8 0+
        resource_name string 0+
        configs []AlterableConfig 0+
            name string 0+
            value string 0+ nullable 0+
    validate_only bool 0+
36 SaslAuthenticate 0-2 flexible 2+
    auth_bytes bytes 0+
37 CreatePartitions 0-3 flexible 2+
    topics []CreatePartitionsTopic 0+
        name string 0+
        count int32 0+
        assignments []CreatePartitionsAssignment 0+ nullable 0+
            broker_ids []int32 0+
    timeout_ms int32 0+
    validate_only bool 0+
38 CreateDelegationToken 1-3 flexible 2+
    owner_principal_type string 3+ nullable 3+
    owner_principal_name string 3+ nullable 3+
    renewers []CreatableRenewers 0+
        principal_type string 0+
        principal_name string 0+
    max_lifetime_ms int64 0+
39 RenewDelegationToken 1-2 flexible 2+
    hmac bytes 0+
    renew_period_ms int64 0+
40 ExpireDelegationToken 1-2 flexible 2+
    hmac bytes 0+
    expiry_time_period_ms int64 0+
41 DescribeDelegationToken 1-3 flexible 2+
    owners []DescribeDelegationTokenOwner 0+ nullable 0+
        principal_type string 0+
        principal_name string 0+
43 ElectLeaders 0-2 flexible 2+
    election_type int8 1+
    topic_partitions []TopicPartitions 0+ nullable 0+
        topic string 0+
        partitions []int32 0+
    timeout_ms int32 0+ default 60000
44 IncrementalAlterConfigs 0-1 flexible 1+
    resources []AlterConfigsResource 0+
        resource_type int8 0+
        resource_name string 0+
        configs []AlterableConfig 0+
            name string 0+
            config_operation int8 0+
            value string 0+ nullable 0+
    validate_only bool 0+
45 AlterPartitionReassignments 0-1 flexible 0+
    timeout_ms int32 0+ default 60000
    allow_replication_factor_change bool 1+ default true
    topics []ReassignableTopic 0+
        name string 0+
        partitions []ReassignablePartition 0+
            partition_index int32 0+
            replicas []int32 0+ nullable 0+ default null
46 ListPartitionReassignments 0 flexible 0+
    timeout_ms int32 0+ default 60000
    topics []ListPartitionReassignmentsTopics 0+ nullable 0+ default null
        name string 0+
        partition_indexes []int32 0+
49 AlterClientQuotas 0-1 flexible 1+
    entries []EntryData 0+
        entity []EntityData 0+
            entity_type string 0+
            entity_name string 0+ nullable 0+
        ops []OpData 0+
            key string 0+
            value float64 0+
            remove bool 0+
    validate_only bool 0+
50 DescribeUserScramCredentials 0 flexible 0+
    users []UserName 0+ nullable 0+
        name string 0+
51 AlterUserScramCredentials 0 flexible 0+
    deletions []ScramCredentialDeletion 0+
        name string 0+
        mechanism int8 0+
    upsertions []ScramCredentialUpsertion 0+
        name string 0+
        mechanism int8 0+
        iterations int32 0+
        salt bytes 0+
        salted_password bytes 0+
52 Vote 0-2 flexible 0+
    cluster_id string 0+ nullable 0+ default null
    voter_id int32 1+ default -1 ignorable yes
    topics []TopicData 0+
        topic_name string 0+
        partitions []PartitionData 0+
            partition_index int32 0+
            replica_epoch int32 0+
            replica_id int32 0+
            replica_directory_id uuid 1+ ignorable yes
            voter_directory_id uuid 1+ ignorable yes
            last_offset_epoch int32 0+
            last_offset int64 0+
            pre_vote bool 2+
53 BeginQuorumEpoch 0-1 flexible 1+
    cluster_id string 0+ nullable 0+ default null
    voter_id int32 1+ default -1 ignorable yes
    topics []TopicData 0+
        topic_name string 0+
        partitions []PartitionData 0+
            partition_index int32 0+
            voter_directory_id uuid 1+ ignorable yes
            leader_id int32 0+
            leader_epoch int32 0+
    leader_endpoints []LeaderEndpoint 1+ ignorable yes
        name string 1+
        host string 1+
        port uint16 1+
54 EndQuorumEpoch 0-1 flexible 1+
    cluster_id string 0+ nullable 0+ default null
    topics []TopicData 0+
        topic_name string 0+
        partitions []PartitionData 0+
            partition_index int32 0+
            leader_id int32 0+
            leader_epoch int32 0+
            preferred_successors []int32 0 ignorable yes
            preferred_candidates []ReplicaInfo 1+ ignorable yes
                candidate_id int32 1+
                candidate_directory_id uuid 1+
    leader_endpoints []LeaderEndpoint 1+ ignorable yes
        name string 1+
        host string 1+
        port uint16 1+
55 DescribeQuorum 0-2 flexible 0+
    topics []TopicData 0+
        topic_name string 0+
        partitions []PartitionData 0+
            partition_index int32 0+
56 AlterPartition 2-3 flexible 0+
    broker_id int32 0+
    broker_epoch int64 0+ default -1
    topics []TopicData 0+
        topic_id uuid 2+ ignorable yes
        partitions []PartitionData 0+
            partition_index int32 0+
            leader_epoch int32 0+
            new_isr []int32 0-2
            new_isr_with_epochs []BrokerState 3+
                broker_id int32 3+
                broker_epoch int64 3+ default -1
            leader_recovery_state int8 1+ default 0
            partition_epoch int32 0+
57 UpdateFeatures 0-2 flexible 0+
    timeout_ms int32 0+ default 60000
    feature_updates []FeatureUpdateKey 0+
        feature string 0+
        max_version_level int16 0+
        allow_downgrade bool 0
        upgrade_type int8 1+ default 1
    validate_only bool 1+ default false
58 Envelope 0 flexible 0+
    request_data bytes 0+
    request_principal bytes 0+ nullable 0+
    client_host_address bytes 0+
59 FetchSnapshot 0-1 flexible 0+
    cluster_id string 0+ nullable 0+ tagged 0+ tag 0 default null
    replica_id int32 0+ default -1
    max_bytes int32 0+ default 0x7fffffff
    topics []TopicSnapshot 0+
        name string 0+
        partitions []PartitionSnapshot 0+
            partition int32 0+
            current_leader_epoch int32 0+
            snapshot_id SnapshotId 0+
                end_offset int64 0+
                epoch int32 0+
            position int64 0+
            replica_directory_id uuid 1+ tagged 1+ tag 0 ignorable yes
60 DescribeCluster 0-2 flexible 0+
    include_cluster_authorized_operations bool 0+
    endpoint_type int8 1+ default 1
    include_fenced_brokers bool 2+
62 BrokerRegistration 0-4 flexible 0+
    broker_id int32 0+
    cluster_id string 0+
    incarnation_id uuid 0+
    listeners []Listener 0+
        name string 0+
        host string 0+
        port uint16 0+
        security_protocol int16 0+
    features []Feature 0+
        name string 0+
        min_supported_version int16 0+
        max_supported_version int16 0+
    rack string 0+ nullable 0+
    is_migrating_zk_broker bool 1+ default false
    log_dirs []uuid 2+ ignorable yes
    previous_broker_epoch int64 3+ default -1 ignorable yes
63 BrokerHeartbeat 0-2 flexible 0+
    broker_id int32 0+
    broker_epoch int64 0+ default -1
    current_metadata_offset int64 0+
    want_fence bool 0+
    want_shut_down bool 0+
    offline_log_dirs []uuid 1+ tagged 1+ tag 0
    cordoned_log_dirs []uuid 2+ nullable 2+ tagged 2+ tag 1 default null
64 UnregisterBroker 0 flexible 0+
    broker_id int32 0+
67 AllocateProducerIds 0 flexible 0+
    broker_id int32 0+
    broker_epoch int64 0+ default -1
70 ControllerRegistration 0 flexible 0+
    controller_id int32 0+
    incarnation_id uuid 0+
    zk_migration_ready bool 0+
    listeners []Listener 0+
        name string 0+
        host string 0+
        port uint16 0+
        security_protocol int16 0+
    features []Feature 0+
        name string 0+
        min_supported_version int16 0+
        max_supported_version int16 0+
73 AssignReplicasToDirs 0 flexible 0+
    broker_id int32 0+
    broker_epoch int64 0+ default -1
    directories []DirectoryData 0+
        id uuid 0+
        topics []TopicData 0+
            topic_id uuid 0+
            partitions []PartitionData 0+
                partition_index int32 0+
80 AddRaftVoter 0-1 flexible 0+
    cluster_id string 0+ nullable 0+
    timeout_ms int32 0+
    voter_id int32 0+
    voter_directory_id uuid 0+
    listeners []Listener 0+
        name string 0+
        host string 0+
        port uint16 0+
    ack_when_committed bool 1+ default true
81 RemoveRaftVoter 0 flexible 0+
    cluster_id string 0+ nullable 0+
    voter_id int32 0+
    voter_directory_id uuid 0+
82 UpdateRaftVoter 0 flexible 0+
    cluster_id string 0+ nullable 0+
    current_leader_epoch int32 0+
    voter_id int32 0+
    voter_directory_id uuid 0+
    listeners []Listener 0+
        name string 0+
        host string 0+
        port uint16 0+
    kraft_version_feature KRaftVersionFeature 0+
        min_supported_version int16 0+
        max_supported_version int16 0+
"""
