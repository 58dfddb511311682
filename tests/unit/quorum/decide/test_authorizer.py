"""Edge: which rule decides. `python -m tests.authorizer` asks Kafka's authorizer the same (B84)."""

import sys

import pytest

from metadata_log.errors import AuthorizerNotReady
from metadata_log.image.metadata_image import EMPTY, MetadataImage
from metadata_log.records.acls import (
    AccessControlEntryRecord,
    AclOperation,
    PatternType,
    PermissionType,
    ResourceType,
)
from quorum.decide.authorizer import Question, Verdict, Why, java_host, verdict_of
from tests.support.histories import claim, small_uuid, step_of

ALLOW, DENY = PermissionType.ALLOW, PermissionType.DENY
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED


def rule(
    number: int,
    operation: AclOperation,
    permission: PermissionType = ALLOW,
    *,
    name: str = "orders",
    pattern: PatternType = LITERAL,
    principal: str = "User:ann",
    host: str = "*",
) -> AccessControlEntryRecord:
    topic = ResourceType.TOPIC
    return AccessControlEntryRecord(
        small_uuid(number), topic, name, pattern, principal, host, operation, permission
    )


def image_of(*rules: AccessControlEntryRecord) -> MetadataImage:
    return step_of(EMPTY, [claim(EMPTY), *rules]).image


def ask(operation: AclOperation, *, name: str = "orders", host: str = "10.0.0.1") -> Question:
    return Question("User:ann", host, operation, ResourceType.TOPIC, name)


def calls_of(acl_count: int) -> int:
    """Return how many functions are called for one question, with so many ACLs."""
    image = image_of(
        *(rule(number, AclOperation.READ, name=f"topic-{number}") for number in range(acl_count))
    )
    calls = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        verdict = verdict_of(image, ask(AclOperation.READ, name="topic-7"))
    finally:
        sys.setprofile(None)
    assert verdict.is_allowed
    return calls


def test_a_question_costs_about_the_same_with_few_acls_and_with_many() -> None:
    assert calls_of(2_500) < 2 * calls_of(25)


def test_what_no_rule_allows_is_denied() -> None:
    assert verdict_of(image_of(), ask(AclOperation.READ)) == Verdict(False, Why.DEFAULT_DENY)


def test_what_no_acl_concerns_is_allowed_where_a_setting_says_so() -> None:
    """An ACL of another principal concerns the resource, too."""
    image = image_of(rule(1, AclOperation.READ, principal="User:bob"))
    allowed = verdict_of(image, ask(AclOperation.READ, name="other"), allow_if_none=True)
    assert allowed == Verdict(True, Why.DEFAULT_ALLOW)
    denied = verdict_of(image, ask(AclOperation.READ), allow_if_none=True)
    assert denied == Verdict(False, Why.DEFAULT_DENY)


def test_a_super_user_may_do_everything_also_before_anything_is_known() -> None:
    denies = rule(1, AclOperation.ALL, DENY)
    for image in (image_of(denies), EMPTY):
        verdict = verdict_of(image, ask(AclOperation.READ), super_users={"User:ann"})
        assert verdict == Verdict(True, Why.SUPER_USER)


def test_as_long_as_nothing_is_known_nothing_is_decided() -> None:
    with pytest.raises(AuthorizerNotReady):
        verdict_of(EMPTY, ask(AclOperation.READ), allow_if_none=True)


@pytest.mark.parametrize(
    ("operation", "implied"),
    [
        *((each, AclOperation.DESCRIBE) for each in (AclOperation.READ, AclOperation.WRITE)),
        *((each, AclOperation.DESCRIBE) for each in (AclOperation.DELETE, AclOperation.ALTER)),
        (AclOperation.ALTER_CONFIGS, AclOperation.DESCRIBE_CONFIGS),
    ],
)
def test_a_right_implies_another_and_its_denial_does_not(
    operation: AclOperation, implied: AclOperation
) -> None:
    assert verdict_of(image_of(rule(1, operation)), ask(implied)).is_allowed
    image = image_of(rule(1, operation, DENY), rule(2, AclOperation.ALL))
    assert verdict_of(image, ask(implied)).is_allowed
    assert not verdict_of(image, ask(operation)).is_allowed


@pytest.mark.parametrize(
    "denies",
    [
        rule(1, AclOperation.READ, DENY),
        rule(1, AclOperation.ALL, DENY, name="*"),
        rule(1, AclOperation.READ, DENY, name="ord", pattern=PREFIXED),
        rule(1, AclOperation.READ, DENY, principal="User:*"),
        rule(1, AclOperation.READ, DENY, host="10.0.0.1"),
    ],
)
def test_a_denial_counts_before_all_that_allows(denies: AccessControlEntryRecord) -> None:
    image = image_of(denies, rule(2, AclOperation.READ), rule(3, AclOperation.ALL, name="*"))
    assert verdict_of(image, ask(AclOperation.READ)) == Verdict(False, Why.RULE, denies)


def test_a_rule_of_another_host_type_or_longer_name_does_not_count() -> None:
    image = image_of(
        rule(1, AclOperation.READ, host="10.0.0.2"),
        rule(2, AclOperation.READ, name="orders-eu", pattern=PREFIXED),
        rule(3, AclOperation.READ, name="order"),
    )
    assert not verdict_of(image, ask(AclOperation.READ)).is_allowed


@pytest.mark.parametrize(
    ("address", "written"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::1", "0:0:0:0:0:0:0:1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("2001:db8::7", "2001:db8:0:0:0:0:0:7"),
        ("fe80::1%eth0", "fe80:0:0:0:0:0:0:1%eth0"),
    ],
)
def test_a_host_is_written_as_java_writes_it(address: str, written: str) -> None:
    assert java_host(address) == written
