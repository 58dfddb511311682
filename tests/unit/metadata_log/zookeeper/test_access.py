"""Settings, users, quotas and ACLs of a tree as records, and what none can be made of."""

import base64

import pytest

from metadata_log.records.acls import (
    AccessControlEntryRecord,
    AclOperation,
    PatternType,
    PermissionType,
    ResourceType,
)
from metadata_log.records.configs import BROKER, CLUSTER_DEFAULT, TOPIC, ConfigRecord
from metadata_log.records.quotas import ClientQuotaRecord, QuotaEntity
from metadata_log.records.tokens import DelegationTokenRecord
from metadata_log.records.users import SCRAM_SHA_256, SCRAM_SHA_512, UserScramCredentialRecord
from metadata_log.zookeeper.access import _OPERATIONS, _RESOURCES
from metadata_log.zookeeper.imported import Imported
from tests.unit.metadata_log.zookeeper.test_topics import topic, tree

SCRAM = "salt=MTEy,stored_key=Lt2t,server_key=9a+6,iterations=4096"


def config(**settings: str) -> dict[str, object]:
    return {"version": 1, "config": {name.replace("_", "."): value for name, value in settings.items()}}


def raw(settings: dict[str, str]) -> dict[str, object]:
    return {"version": 1, "config": settings}


def of(found: Imported, kind: type) -> list[object]:
    assert not found.findings.damaged
    return [record for record in found.records if isinstance(record, kind)]


def test_settings_of_topics_and_brokers() -> None:
    found = tree(
        {
            "/brokers/topics/t": topic({"0": [1]}),
            "/config/topics/t": config(retention_ms="5", cleanup_policy="compact"),
            "/config/topics/gone": config(retention_ms="5"),
            "/config/brokers/1": config(log_cleaner_threads="2"),
            "/config/brokers/<default>": config(log_cleaner_threads="3"),
        }
    )
    assert of(found, ConfigRecord) == [
        ConfigRecord(TOPIC, "t", "cleanup.policy", "compact", None),
        ConfigRecord(TOPIC, "t", "retention.ms", "5", None),
        ConfigRecord(BROKER, "1", "log.cleaner.threads", "2", None),
        ConfigRecord(BROKER, CLUSTER_DEFAULT, "log.cleaner.threads", "3", None),
    ]
    assert found.findings.left_out == [("/config/topics/gone", "no topic of this name is imported")]


def test_what_brokers_encrypted_is_told_and_never_taken_for_the_secret() -> None:
    found = tree(
        {"/config/brokers/1": config(ssl_keystore_password="initializationVector:x,encryptedPassword:y")}
    )
    assert of(found, ConfigRecord) == []
    ((path, why),) = found.findings.left_out
    assert path == "/config/brokers/1"
    assert why.startswith("ssl.keystore.password: encrypted under")
    assert "encryptedPassword" not in why


def test_a_setting_that_kafka_does_not_know_has_a_key_of_its_own() -> None:
    """Brokers encrypted passwords alone: a plugin's setting comes as it is, and is a secret."""
    found = tree(
        {
            "/brokers/topics/t": topic({"0": [1]}),
            "/config/topics/t": config(plugin_password="x", retention_ms="1"),
            "/config/brokers/1": config(plugin_setting="y", log_retention_ms="1"),
        }
    )
    records = [each for each in of(found, ConfigRecord) if isinstance(each, ConfigRecord)]
    keys = {each.name: each.mask_key for each in records}
    assert {name: key and len(key) for name, key in keys.items()} == {
        "plugin.password": 16,
        "plugin.setting": 16,
        "retention.ms": None,
        "log.retention.ms": None,
    }


def test_users_have_credentials_and_quotas() -> None:
    found = tree(
        {
            "/config/users/alice%20b%2A": raw(
                {"SCRAM-SHA-512": SCRAM, "SCRAM-SHA-256": SCRAM, "producer_byte_rate": "9"}
            ),
            "/config/users/bob": "",
            "/config/users/bob/clients": "",
            "/config/users/bob/clients/c%201": raw({"request_percentage": "50.5"}),
            "/config/users/<default>": raw({"consumer_byte_rate": "7"}),
            "/config/users/<default>/clients/<default>": raw({"consumer_byte_rate": "6"}),
            "/config/clients/<default>": raw({"producer_byte_rate": "8"}),
            "/config/ips/127.0.0.1": raw({"connection_creation_rate": "100"}),
        }
    )
    users = of(found, UserScramCredentialRecord)
    assert [record[:-1] for record in users if isinstance(record, tuple)] == [
        ("alice b*", mechanism, b"112", base64.b64decode("Lt2t"), base64.b64decode("9a+6"), 4096)
        for mechanism in (SCRAM_SHA_256, SCRAM_SHA_512)
    ]
    assert of(found, ClientQuotaRecord) == [
        ClientQuotaRecord((QuotaEntity("user", "alice b*"),), "producer_byte_rate", 9.0, remove=False),
        ClientQuotaRecord(
            (QuotaEntity("client-id", "c 1"), QuotaEntity("user", "bob")),
            "request_percentage",
            50.5,
            remove=False,
        ),
        ClientQuotaRecord((QuotaEntity("user", None),), "consumer_byte_rate", 7.0, remove=False),
        ClientQuotaRecord(
            (QuotaEntity("client-id", None), QuotaEntity("user", None)),
            "consumer_byte_rate",
            6.0,
            remove=False,
        ),
        ClientQuotaRecord((QuotaEntity("client-id", None),), "producer_byte_rate", 8.0, remove=False),
        ClientQuotaRecord((QuotaEntity("ip", "127.0.0.1"),), "connection_creation_rate", 100.0, remove=False),
    ]


def entry(**changes: str) -> dict[str, str]:
    return {"principal": "User:alice", "permissionType": "Allow", "operation": "Read", "host": "*"} | changes


def test_acls_are_literal_or_prefixed() -> None:
    found = tree(
        {
            "/kafka-acl/Topic/orders": {"version": 1, "acls": [entry(), entry(operation="DescribeConfigs")]},
            "/kafka-acl/Group/*": {"version": 1, "acls": [entry(permissionType="Deny", host="10.0.0.1")]},
            "/kafka-acl/TransactionalId": "",
            "/kafka-acl-extended/prefixed/TransactionalId/pay": {
                "version": 1,
                "acls": [entry(operation="All")],
            },
        }
    )
    rows = [record[1:] for record in of(found, AccessControlEntryRecord) if isinstance(record, tuple)]
    deny, allow = PermissionType.DENY, PermissionType.ALLOW
    assert rows == [
        (ResourceType.TOPIC, "orders", PatternType.LITERAL, "User:alice", "*", AclOperation.READ, allow),
        (
            ResourceType.TOPIC,
            "orders",
            PatternType.LITERAL,
            "User:alice",
            "*",
            AclOperation.DESCRIBE_CONFIGS,
            allow,
        ),
        (ResourceType.GROUP, "*", PatternType.LITERAL, "User:alice", "10.0.0.1", AclOperation.READ, deny),
        (
            ResourceType.TRANSACTIONAL_ID,
            "pay",
            PatternType.PREFIXED,
            "User:alice",
            "*",
            AclOperation.ALL,
            allow,
        ),
    ]
    assert all(type(value) in (int, str) for row in rows for value in row), "the values of a record are plain"
    assert (
        len({record[0] for record in of(found, AccessControlEntryRecord) if isinstance(record, tuple)}) == 4
    )


TOKEN = {
    "version": 3,
    "owner": "User:alice",
    "tokenRequester": "User:bob",
    "renewers": ["User:carol"],
    "issueTimestamp": 1,
    "maxTimestamp": 3,
    "expiryTimestamp": 2,
    "tokenId": "abc",
}


def test_delegation_tokens_come_without_their_hmac() -> None:
    """Of version 1 the owner asked for it. Source: DelegationTokenManagerZk of 3.9."""
    old = {name: value for name, value in TOKEN.items() if name != "tokenRequester"} | {"version": 1}
    found = tree(
        {"/delegation_token/tokens/abc": TOKEN, "/delegation_token/tokens/old": {**old, "tokenId": "old"}}
    )
    assert of(found, DelegationTokenRecord) == [
        DelegationTokenRecord("abc", "User:alice", "User:bob", ("User:carol",), 1, 3, 2),
        DelegationTokenRecord("old", "User:alice", "User:alice", ("User:carol",), 1, 3, 2),
    ]


def test_kafkas_names_of_operations_and_resources_are_all_known() -> None:
    """Goal: each name that 3.9 writes is read. Source: SecurityUtils of 3.9."""
    operations = "All Read Write Create Delete Alter Describe ClusterAction AlterConfigs DescribeConfigs IdempotentWrite"
    assert {
        name.upper() for name in f"{operations} CreateTokens DescribeTokens".split()
    } <= _OPERATIONS.keys()
    resources = "Topic Group Cluster TransactionalId DelegationToken User"
    assert {name.upper() for name in resources.split()} == _RESOURCES.keys()


@pytest.mark.parametrize(
    ("path", "value", "why"),
    [
        ("/config/brokers/1", "{", "truncated"),
        ("/config/brokers/1", {"version": 2, "config": {}}, "version 2"),
        ("/config/brokers/one", config(a="1"), "'one' is no id"),
        ("/config/clients/c", {"version": 1}, "missing required field `config`"),
        ("/config/clients/c", raw({"producer_byte_rate": "fast"}), "is no number"),
        ("/config/clients/c", raw({"producer_byte_rate": "NaN"}), "is not finite"),
        ("/config/users/u", raw({"SCRAM-SHA-256": "salt=MTEy"}), "has salt"),
        ("/config/users/u", raw({"SCRAM-SHA-256": SCRAM.replace("MTEy", "?")}), "no credential"),
        ("/config/users/u", raw({"SCRAM-SHA-256": SCRAM.replace("4096", "0")}), "no credential"),
        ("/config/users/<default>", raw({"SCRAM-SHA-256": SCRAM}), "belongs to one"),
        ("/config/users/%FF", raw({"producer_byte_rate": "1"}), "not encoded"),
        ("/delegation_token/tokens/abc", {**TOKEN, "version": 4}, "version 4"),
        ("/kafka-acl/Volume/v", {"version": 1, "acls": [entry()]}, "no type of resources"),
        (
            "/kafka-acl/Topic/t",
            {"version": 1, "acls": [entry(operation="Sing")]},
            "Allow Sing for User:alice",
        ),
        ("/kafka-acl/Topic/t", {"version": 1, "acls": [entry(principal="alice")]}, "is no ACL"),
        ("/kafka-acl/Topic/t", {"version": 9, "acls": []}, "version 9"),
    ],
)
def test_a_node_that_cannot_be_is_named(path: str, value: str | dict[str, object], why: str) -> None:
    (damaged,) = tree({path: value}).findings.damaged
    assert damaged.path == path and why in damaged.why


def test_no_reason_shows_a_secret() -> None:
    (damaged,) = tree({"/config/users/u": raw({"SCRAM-SHA-256": f"{SCRAM},pepper=geheim"})}).findings.damaged
    assert "geheim" not in damaged.why and "Lt2t" not in damaged.why
