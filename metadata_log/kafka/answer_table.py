"""Pure: the schemas of a controller's answers, of Apache Kafka 4.3.1; `python -m tests.kafka_schemas` writes it.

`schemas.py` says what a line means. Tests: tests/unit/metadata_log/kafka/test_messages.py.
"""

from typing import Final

HEADER: Final = """
0 ResponseHeader 0-1 flexible 1+
    correlation_id int32 0+
"""

ANSWERS: Final = """
1 Fetch 4-18 flexible 12+
    throttle_time_ms int32 1+ ignorable yes
    error_code int16 7+ ignorable yes
    session_id int32 7+ default 0
    responses []FetchableTopicResponse 0+
        topic string 0-12 ignorable yes
        topic_id uuid 13+ ignorable yes
        partitions []PartitionData 0+
            partition_index int32 0+
            error_code int16 0+
            high_watermark int64 0+
            last_stable_offset int64 4+ default -1 ignorable yes
            log_start_offset int64 5+ default -1 ignorable yes
            diverging_epoch EpochEndOffset 12+ tagged 12+ tag 0
                epoch int32 12+ default -1
                end_offset int64 12+ default -1
            current_leader LeaderIdAndEpoch 12+ tagged 12+ tag 1
                leader_id int32 12+ default -1
                leader_epoch int32 12+ default -1
            snapshot_id SnapshotId 12+ tagged 12+ tag 2
                end_offset int64 0+ default -1
                epoch int32 0+ default -1
            aborted_transactions []AbortedTransaction 4+ nullable 4+ ignorable yes
                producer_id int64 4+
                first_offset int64 4+
            preferred_read_replica int32 11+ default -1
            records records 0+ nullable 0+
    node_endpoints []NodeEndpoint 16+ tagged 16+ tag 0
        node_id int32 16+
        host string 16+
        port int32 16+
        rack string 16+ nullable 16+ default null
17 SaslHandshake 0-1 flexible none
    error_code int16 0+
    mechanisms []string 0+
18 ApiVersions 0-4 flexible 3+
    error_code int16 0+
    api_keys []ApiVersion 0+
        api_key int16 0+
        min_version int16 0+
        max_version int16 0+
    throttle_time_ms int32 1+ ignorable yes
    supported_features []SupportedFeatureKey 3+ tagged 3+ tag 0 ignorable yes
        name string 3+
        min_version int16 3+
        max_version int16 3+
    finalized_features_epoch int64 3+ tagged 3+ tag 1 default -1 ignorable yes
    finalized_features []FinalizedFeatureKey 3+ tagged 3+ tag 2 ignorable yes
        name string 3+
        max_version_level int16 3+
        min_version_level int16 3+
    zk_migration_ready bool 3+ tagged 3+ tag 3 default false ignorable yes
19 CreateTopics 2-7 flexible 5+
    throttle_time_ms int32 2+ ignorable yes
    topics []CreatableTopicResult 0+
        name string 0+
        topic_id uuid 7+ ignorable yes
        error_code int16 0+
        error_message string 1+ nullable 0+ ignorable yes
        topic_config_error_code int16 5+ tagged 5+ tag 0 ignorable yes
        num_partitions int32 5+ default -1 ignorable yes
        replication_factor int16 5+ default -1 ignorable yes
        configs []CreatableTopicConfigs 5+ nullable 5+ ignorable yes
            name string 5+
            value string 5+ nullable 5+
            read_only bool 5+
            config_source int8 5+ default -1 ignorable yes
            is_sensitive bool 5+
20 DeleteTopics 1-6 flexible 4+
    throttle_time_ms int32 1+ ignorable yes
    responses []DeletableTopicResult 0+
        name string 0+ nullable 6+
        topic_id uuid 6+ ignorable yes
        error_code int16 0+
        error_message string 5+ nullable 5+ default null ignorable yes
29 DescribeAcls 1-3 flexible 2+
    throttle_time_ms int32 0+
    error_code int16 0+
    error_message string 0+ nullable 0+
    resources []DescribeAclsResource 0+
        resource_type int8 0+
        resource_name string 0+
        pattern_type int8 1+ default 3
        acls []AclDescription 0+
            principal string 0+
            host string 0+
            operation int8 0+
            permission_type int8 0+
30 CreateAcls 1-3 flexible 2+
    throttle_time_ms int32 0+
    results []AclCreationResult 0+
        error_code int16 0+
        error_message string 0+ nullable 0+
31 DeleteAcls 1-3 flexible 2+
    throttle_time_ms int32 0+
    filter_results []DeleteAclsFilterResult 0+
        error_code int16 0+
        error_message string 0+ nullable 0+
        matching_acls []DeleteAclsMatchingAcl 0+
            error_code int16 0+
            error_message string 0+ nullable 0+
            resource_type int8 0+
            resource_name string 0+
            pattern_type int8 1+ default 3
            principal string 0+
            host string 0+
            operation int8 0+
            permission_type int8 0+
32 DescribeConfigs 1-4 flexible 4+
    throttle_time_ms int32 0+
    results []DescribeConfigsResult 0+
        error_code int16 0+
        error_message string 0+ nullable 0+
        resource_type int8 0+
        resource_name string 0+
        configs []DescribeConfigsResourceResult 0+
            name string 0+
            value string 0+ nullable 0+
            read_only bool 0+
            config_source int8 1+ default -1 ignorable yes
            is_sensitive bool 0+
            synonyms []DescribeConfigsSynonym 1+ ignorable yes
                name string 1+
                value string 1+ nullable 0+
                source int8 1+
            config_type int8 3+ default 0 ignorable yes
            documentation string 3+ nullable 0+ ignorable yes
33 AlterConfigs 0-2 flexible 2+
    throttle_time_ms int32 0+
    responses []AlterConfigsResourceResponse 0+
        error_code int16 0+
        error_message string 0+ nullable 0+
        resource_type int8 0+
        resource_name string 0+
36 SaslAuthenticate 0-2 flexible 2+
    error_code int16 0+
    error_message string 0+ nullable 0+
    auth_bytes bytes 0+
    session_lifetime_ms int64 1+ default 0 ignorable yes
37 CreatePartitions 0-3 flexible 2+
    throttle_time_ms int32 0+
    results []CreatePartitionsTopicResult 0+
        name string 0+
        error_code int16 0+
        error_message string 0+ nullable 0+ default null
38 CreateDelegationToken 1-3 flexible 2+
    error_code int16 0+
    principal_type string 0+
    principal_name string 0+
    token_requester_principal_type string 3+
    token_requester_principal_name string 3+
    issue_timestamp_ms int64 0+
    expiry_timestamp_ms int64 0+
    max_timestamp_ms int64 0+
    token_id string 0+
    hmac bytes 0+
    throttle_time_ms int32 0+
39 RenewDelegationToken 1-2 flexible 2+
    error_code int16 0+
    expiry_timestamp_ms int64 0+
    throttle_time_ms int32 0+
40 ExpireDelegationToken 1-2 flexible 2+
    error_code int16 0+
    expiry_timestamp_ms int64 0+
    throttle_time_ms int32 0+
41 DescribeDelegationToken 1-3 flexible 2+
    error_code int16 0+
    tokens []DescribedDelegationToken 0+
        principal_type string 0+
        principal_name string 0+
        token_requester_principal_type string 3+
        token_requester_principal_name string 3+
        issue_timestamp int64 0+
        expiry_timestamp int64 0+
        max_timestamp int64 0+
        token_id string 0+
        hmac bytes 0+
        renewers []DescribedDelegationTokenRenewer 0+
            principal_type string 0+
            principal_name string 0+
    throttle_time_ms int32 0+
43 ElectLeaders 0-2 flexible 2+
    throttle_time_ms int32 0+
    error_code int16 1+
    replica_election_results []ReplicaElectionResult 0+
        topic string 0+
        partition_result []PartitionResult 0+
            partition_id int32 0+
            error_code int16 0+
            error_message string 0+ nullable 0+
44 IncrementalAlterConfigs 0-1 flexible 1+
    throttle_time_ms int32 0+
    responses []AlterConfigsResourceResponse 0+
        error_code int16 0+
        error_message string 0+ nullable 0+
        resource_type int8 0+
        resource_name string 0+
45 AlterPartitionReassignments 0-1 flexible 0+
    throttle_time_ms int32 0+
    allow_replication_factor_change bool 1+ default true ignorable yes
    error_code int16 0+
    error_message string 0+ nullable 0+
    responses []ReassignableTopicResponse 0+
        name string 0+
        partitions []ReassignablePartitionResponse 0+
            partition_index int32 0+
            error_code int16 0+
            error_message string 0+ nullable 0+
46 ListPartitionReassignments 0 flexible 0+
    throttle_time_ms int32 0+
    error_code int16 0+
    error_message string 0+ nullable 0+
    topics []OngoingTopicReassignment 0+
        name string 0+
        partitions []OngoingPartitionReassignment 0+
            partition_index int32 0+
            replicas []int32 0+
            adding_replicas []int32 0+
            removing_replicas []int32 0+
49 AlterClientQuotas 0-1 flexible 1+
    throttle_time_ms int32 0+
    entries []EntryData 0+
        error_code int16 0+
        error_message string 0+ nullable 0+
        entity []EntityData 0+
            entity_type string 0+
            entity_name string 0+ nullable 0+
50 DescribeUserScramCredentials 0 flexible 0+
    throttle_time_ms int32 0+
    error_code int16 0+
    error_message string 0+ nullable 0+
    results []DescribeUserScramCredentialsResult 0+
        user string 0+
        error_code int16 0+
        error_message string 0+ nullable 0+
        credential_infos []CredentialInfo 0+
            mechanism int8 0+
            iterations int32 0+
51 AlterUserScramCredentials 0 flexible 0+
    throttle_time_ms int32 0+
    results []AlterUserScramCredentialsResult 0+
        user string 0+
        error_code int16 0+
        error_message string 0+ nullable 0+
52 Vote 0-2 flexible 0+
    error_code int16 0+
    topics []TopicData 0+
        topic_name string 0+
        partitions []PartitionData 0+
            partition_index int32 0+
            error_code int16 0+
            leader_id int32 0+
            leader_epoch int32 0+
            vote_granted bool 0+
    node_endpoints []NodeEndpoint 1+ tagged 1+ tag 0
        node_id int32 1+
        host string 1+
        port uint16 1+
53 BeginQuorumEpoch 0-1 flexible 1+
    error_code int16 0+
    topics []TopicData 0+
        topic_name string 0+
        partitions []PartitionData 0+
            partition_index int32 0+
            error_code int16 0+
            leader_id int32 0+
            leader_epoch int32 0+
    node_endpoints []NodeEndpoint 1+ tagged 1+ tag 0
        node_id int32 1+
        host string 1+
        port uint16 1+
54 EndQuorumEpoch 0-1 flexible 1+
    error_code int16 0+
    topics []TopicData 0+
        topic_name string 0+
        partitions []PartitionData 0+
            partition_index int32 0+
            error_code int16 0+
            leader_id int32 0+
            leader_epoch int32 0+
    node_endpoints []NodeEndpoint 1+ tagged 1+ tag 0
        node_id int32 1+
        host string 1+
        port uint16 1+
55 DescribeQuorum 0-2 flexible 0+
    error_code int16 0+
    error_message string 2+ nullable 2+ ignorable yes
    topics []TopicData 0+
        topic_name string 0+
        partitions []PartitionData 0+
            partition_index int32 0+
            error_code int16 0+
            error_message string 2+ nullable 2+ ignorable yes
            leader_id int32 0+
            leader_epoch int32 0+
            high_watermark int64 0+
            current_voters []ReplicaState 0+
                replica_id int32 0+
                replica_directory_id uuid 2+
                log_end_offset int64 0+
                last_fetch_timestamp int64 1+ default -1 ignorable yes
                last_caught_up_timestamp int64 1+ default -1 ignorable yes
            observers []ReplicaState 0+
                replica_id int32 0+
                replica_directory_id uuid 2+
                log_end_offset int64 0+
                last_fetch_timestamp int64 1+ default -1 ignorable yes
                last_caught_up_timestamp int64 1+ default -1 ignorable yes
    nodes []Node 2+
        node_id int32 2+
        listeners []Listener 2+
            name string 2+
            host string 2+
            port uint16 2+
56 AlterPartition 2-3 flexible 0+
    throttle_time_ms int32 0+
    error_code int16 0+
    topics []TopicData 0+
        topic_id uuid 2+ ignorable yes
        partitions []PartitionData 0+
            partition_index int32 0+
            error_code int16 0+
            leader_id int32 0+
            leader_epoch int32 0+
            isr []int32 0+
            leader_recovery_state int8 1+ default 0 ignorable yes
            partition_epoch int32 0+
57 UpdateFeatures 0-2 flexible 0+
    throttle_time_ms int32 0+
    error_code int16 0+
    error_message string 0+ nullable 0+
    results []UpdatableFeatureResult 0-1 ignorable yes
        feature string 0+
        error_code int16 0+
        error_message string 0+ nullable 0+
58 Envelope 0 flexible 0+
    response_data bytes 0+ nullable 0+ default null
    error_code int16 0+
59 FetchSnapshot 0-1 flexible 0+
    throttle_time_ms int32 0+ ignorable yes
    error_code int16 0+
    topics []TopicSnapshot 0+
        name string 0+
        partitions []PartitionSnapshot 0+
            index int32 0+
            error_code int16 0+
            snapshot_id SnapshotId 0+
                end_offset int64 0+
                epoch int32 0+
            current_leader LeaderIdAndEpoch 0+ tagged 0+ tag 0
                leader_id int32 0+
                leader_epoch int32 0+
            size int64 0+
            position int64 0+
            unaligned_records records 0+
    node_endpoints []NodeEndpoint 1+ tagged 1+ tag 0
        node_id int32 1+
        host string 1+
        port uint16 1+
60 DescribeCluster 0-2 flexible 0+
    throttle_time_ms int32 0+
    error_code int16 0+
    error_message string 0+ nullable 0+ default null
    endpoint_type int8 1+ default 1
    cluster_id string 0+
    controller_id int32 0+ default -1
    brokers []DescribeClusterBroker 0+
        broker_id int32 0+
        host string 0+
        port int32 0+
        rack string 0+ nullable 0+ default null
        is_fenced bool 2+
    cluster_authorized_operations int32 0+ default -2147483648
62 BrokerRegistration 0-4 flexible 0+
    throttle_time_ms int32 0+
    error_code int16 0+
    broker_epoch int64 0+ default -1
63 BrokerHeartbeat 0-2 flexible 0+
    throttle_time_ms int32 0+
    error_code int16 0+
    is_caught_up bool 0+ default false
    is_fenced bool 0+ default true
    should_shut_down bool 0+
64 UnregisterBroker 0 flexible 0+
    throttle_time_ms int32 0+
    error_code int16 0+
    error_message string 0+ nullable 0+
67 AllocateProducerIds 0 flexible 0+
    throttle_time_ms int32 0+
    error_code int16 0+
    producer_id_start int64 0+
    producer_id_len int32 0+
70 ControllerRegistration 0 flexible 0+
    throttle_time_ms int32 0+
    error_code int16 0+
    error_message string 0+ nullable 0+
73 AssignReplicasToDirs 0 flexible 0+
    throttle_time_ms int32 0+
    error_code int16 0+
    directories []DirectoryData 0+
        id uuid 0+
        topics []TopicData 0+
            topic_id uuid 0+
            partitions []PartitionData 0+
                partition_index int32 0+
                error_code int16 0+
80 AddRaftVoter 0-1 flexible 0+
    throttle_time_ms int32 0+
    error_code int16 0+
    error_message string 0+ nullable 0+ ignorable yes
81 RemoveRaftVoter 0 flexible 0+
    throttle_time_ms int32 0+
    error_code int16 0+
    error_message string 0+ nullable 0+ ignorable yes
82 UpdateRaftVoter 0 flexible 0+
    throttle_time_ms int32 0+
    error_code int16 0+
    current_leader CurrentLeader 0+ tagged 0+ tag 0
        leader_id int32 0+ default -1
        leader_epoch int32 0+ default -1
        host string 0+
        port int32 0+
"""
