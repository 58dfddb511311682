"""Pure: access control lists in the image: what concerns a resource is found by lookups."""

import random
from collections import Counter

import pytest

from metadata_log.ids import Uuid, random_uuid
from metadata_log.image.acls import AclsBuilder, AclsImage, Pattern, Rule, acl_item, pattern_of, rule_of
from metadata_log.image.metadata_image import EMPTY, MetadataImage
from metadata_log.items import listed
from metadata_log.records.acls import (
    AccessControlEntryRecord,
    PatternType,
    RemoveAccessControlEntryRecord,
    ResourceType,
)
from metadata_log.records.registry import Record
from tests.support.histories import claim, small_uuid, step_of

TOPIC, LITERAL, PREFIXED = ResourceType.TOPIC, PatternType.LITERAL, PatternType.PREFIXED


def acl(
    number: int, name: str, pattern_type: PatternType = LITERAL, *, principal: str = "User:ann"
) -> AccessControlEntryRecord:
    return AccessControlEntryRecord(small_uuid(number), TOPIC, name, pattern_type, principal, "*", 3, 3)


def image_of(*records: Record) -> MetadataImage:
    return step_of(EMPTY, [claim(EMPTY), *records]).image


def test_an_acl_is_created_and_removed() -> None:
    orders = acl(1, "orders")
    image = image_of(orders)
    assert dict(image.acls.by_id) == {orders.id: orders}
    assert image.acls.id_of(acl(2, "orders")) == orders.id
    assert image.acls.id_of(acl(2, "other")) is None
    assert image.acls.id_of(acl(2, "orders", principal="User:bob")) is None
    after = step_of(image, [RemoveAccessControlEntryRecord(orders.id)]).image
    assert after.acls == AclsImage() and not after.acls.by_pattern


@pytest.mark.parametrize(
    "record", [acl(1, "other"), acl(2, "orders"), RemoveAccessControlEntryRecord(small_uuid(9))]
)
def test_a_record_that_contradicts_the_acls_is_no_history(record: Record) -> None:
    """An id is given once, no two ACLs say the same, and what is not there cannot go."""
    image = image_of(acl(1, "orders"))
    with pytest.raises(Exception, match=r"is there already|says the same|KeyError|record"):
        step_of(image, [record])


def test_what_concerns_a_resource_comes_in_kafkas_order() -> None:
    """The resource's own name first, then its prefixes, the longest before the others, and `*` at the end."""
    image = image_of(
        *(acl(1, "orders"), acl(2, "orders", PREFIXED), acl(3, "o", PREFIXED), acl(4, "ord", PREFIXED)),
        *(acl(5, "*"), acl(6, "ord"), acl(7, "p", PREFIXED), acl(8, "orders-eu", PREFIXED)),
    )
    found = [pattern.name for pattern, _ in image.acls.concerning(TOPIC, "orders")]
    assert found == ["orders", "orders", "ord", "o", "*"]
    assert [pattern.name for pattern, _ in image.acls.concerning(TOPIC, "*")] == ["*"]
    assert list(image.acls.concerning(ResourceType.GROUP, "orders")) == []


@pytest.mark.parametrize("seed", range(10))
def test_the_index_is_the_one_from_nothing(seed: int) -> None:
    rng = random.Random(seed)
    image = image_of()
    for _ in range(80):
        if image.acls.by_id and rng.random() < 0.4:
            record: Record = RemoveAccessControlEntryRecord(rng.choice(sorted(image.acls.by_id)))
        else:
            name = rng.choice(["a", "ab", "abc", "*"])
            wanted = acl(0, name, rng.choice([LITERAL, PREFIXED]), principal=rng.choice(["User:a", "User:*"]))
            if image.acls.id_of(wanted) is not None:
                continue
            record = wanted._replace(id=random_uuid(rng))
        image = step_of(image, [record]).image
    expected: dict[Pattern, dict[str, dict[Rule, Uuid]]] = {}
    lengths: dict[int, Counter[int]] = {}
    for each in image.acls.by_id.values():
        expected.setdefault(pattern_of(each), {}).setdefault(each.principal, {})[rule_of(each)] = each.id
    for pattern in expected:
        if pattern.pattern_type == PREFIXED:
            lengths.setdefault(pattern.resource_type, Counter())[len(pattern.name)] += 1
    found = {
        pattern: {principal: dict(rules) for principal, rules in principals.items()}
        for pattern, principals in image.acls.by_pattern.items()
    }
    assert found == expected
    assert {kind: dict(counts) for kind, counts in image.acls.prefixes.items()} == lengths


def test_json_names_the_kinds_of_an_acl() -> None:
    shown = acl_item(acl(1, "orders")._replace(operation=99))
    assert shown == {
        "id": "QAAAAAAAAAAAAAAAAAAAAQ",
        "resource_type": "TOPIC",
        "resource_name": "orders",
        "pattern_type": "LITERAL",
        "principal": "User:ann",
        "host": "*",
        "operation": 99,
        "permission_type": "ALLOW",
    }


def test_the_state_lists_acls_in_order_of_id() -> None:
    image = image_of(acl(2, "b"), acl(1, "a"))
    shown = listed(AclsBuilder.view(image.acls))
    assert [each["resource_name"] for each in shown["acls"]] == ["a", "b"]
