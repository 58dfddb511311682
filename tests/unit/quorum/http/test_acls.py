"""Edge: access control lists over HTTP, and what they give to principals without roles."""

from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from quorum.node.config import AclSettings
from tests.support.desk import Desk
from tests.unit.quorum.http.test_identity import Ask, behind_tokens

WHO = {"User:admin": "admin", "User:ann": "", "User:reader": "reader"}
ACL = {
    "resource_type": "TOPIC",
    "resource_name": "ord",
    "pattern_type": "PREFIXED",
    "principal": "User:ann",
    "operation": "CREATE",
}
TOPIC = {"name": "orders", "partitions": 1, "replication_factor": 1}
NOT_ENOUGH_BROKERS = "INVALID_REPLICATION_FACTOR"
"""What a creation is answered that is allowed: no broker is registered here."""


ENFORCED = AclSettings(enforced=True)


def where_acls_count(
    directory: Path, settings: AclSettings = ENFORCED
) -> AbstractAsyncContextManager[tuple[Desk, Ask]]:
    """Return a desk whose controller enforces ACLs, and what asks it."""
    return behind_tokens(directory, WHO, settings)


async def create(ask: Ask, *acls: dict[str, Any], who: str = "User:admin", **more: Any) -> tuple[int, Any]:
    return await ask("POST", "/v1/acls", who, {"acls": [ACL | acl for acl in acls], **more})


async def test_acls_are_created_listed_filtered_and_deleted(tmp_path: Path) -> None:
    async with where_acls_count(tmp_path) as (_, ask):
        status, body = await create(ask, {}, {"operation": "READ"}, {"resource_name": ""})
        assert status == 200
        assert [each["error"] for each in body["acls"]] == [None, None, "INVALID_REQUEST"]
        status, body = await ask("GET", "/v1/acls?operation=READ", "User:reader")
        assert (status, body["enforced"], len(body["items"])) == (200, True, 1)
        assert body["items"][0] | {"id": ""} == ACL | {
            "id": "",
            "operation": "READ",
            "host": "*",
            "permission_type": "ALLOW",
        }
        matching = "?resource_type=TOPIC&resource_name=orders&pattern_type=MATCH"
        assert len((await ask("GET", f"/v1/acls{matching}", "User:admin"))[1]["items"]) == 2
        meant = {"filters": [{"principal": "User:ann"}], "in_steps": True}
        assert (await ask("POST", "/v1/acls/delete", "User:reader", meant))[0] == 403
        status, body = await ask("POST", "/v1/acls/delete", "User:admin", meant)
        assert (status, body["deleted"], body["left"]) == (200, 2, 0)
        assert len(body["filters"][0]["acls"]) == 2
        assert (await ask("GET", "/v1/acls", "User:admin"))[1]["items"] == []


async def test_a_trial_writes_nothing(tmp_path: Path) -> None:
    async with where_acls_count(tmp_path) as (desk, ask):
        assert (await create(ask, {}, validate_only=True))[0] == 200
        assert not desk.controller.committed.acls.by_id


@pytest.mark.parametrize(
    "query",
    [
        "operation=NONE",
        "pattern_type=UNKNOWN",
        "principal=",
        "nothing=1",
    ],
)
async def test_a_query_that_means_nothing_is_refused(tmp_path: Path, query: str) -> None:
    async with where_acls_count(tmp_path) as (_, ask):
        assert (await ask("GET", f"/v1/acls?{query}", "User:admin"))[0] == 400


async def test_an_explanation_names_the_rule_that_decides(tmp_path: Path) -> None:
    async with where_acls_count(tmp_path) as (_, ask):
        await create(ask, {}, {"permission_type": "DENY", "host": "10.0.0.1"})

        async def explained(query: str, principal: str = "User:ann") -> Any:
            path = f"/v1/acls/explain?principal={principal}&operation=CREATE&resource=topic:{query}"
            status, body = await ask("GET", path, "User:admin")
            assert status == 200, body
            return body["allowed"], body["why"], body["rule"] and body["rule"]["host"]

        assert await explained("orders") == (True, "rule", "*")
        assert await explained("orders&host=10.0.0.1") == (False, "rule", "10.0.0.1")
        assert await explained("other") == (False, "no ACL allows it", None)
        assert await explained("other", "User:admin") == (True, "super user", None)
        for query in ("", "?principal=User:ann", "?principal=a&operation=READ&resource=nothing"):
            assert (await ask("GET", f"/v1/acls/explain{query}", "User:admin"))[0] == 400
        bad_host = "?principal=a&operation=READ&resource=topic:t&host=nowhere"
        assert (await ask("GET", f"/v1/acls/explain{bad_host}", "User:admin"))[0] == 400


async def test_a_principal_without_a_role_has_what_acls_give_it(tmp_path: Path) -> None:
    async with where_acls_count(tmp_path) as (_, ask):
        status, body = await ask("POST", "/v1/topics", "User:ann", TOPIC)
        assert (status, body["error"], body["code"]) == (403, "TOPIC_AUTHORIZATION_FAILED", 29)
        assert (await create(ask, {}, who="User:ann"))[0] == 403
        await create(ask, {}, {"operation": "DESCRIBE"})
        assert (await ask("POST", "/v1/topics", "User:ann", TOPIC))[1]["error"] == NOT_ENOUGH_BROKERS
        assert (await ask("POST", "/v1/topics", "User:ann", TOPIC | {"name": "other"}))[0] == 403
        many = {"topics": [TOPIC, TOPIC | {"name": "other"}]}
        assert (await ask("POST", "/v1/topics", "User:ann", many))[0] == 403
        assert (await ask("GET", "/v1/topics/orders", "User:ann"))[0] == 404
        assert (await ask("GET", "/v1/topics", "User:ann"))[0] == 403
        assert (await ask("GET", "/v1/brokers", "User:ann"))[0] == 200
        batch = {"commands": [{"operation": "CreateTopics", "command": TOPIC | {"name": "other"}}]}
        assert (await ask("POST", "/v1/batch", "User:ann", batch))[0] in (200, 400, 403)
        denies = {"permission_type": "DENY", "principal": "User:*", "operation": "ALL"}
        await create(ask, denies)
        status, body = await ask("POST", "/v1/topics", "User:ann", TOPIC)
        assert status == 403 and "denies it" in body["message"]
        assert (await ask("POST", "/v1/topics", "User:admin", TOPIC))[1]["error"] == NOT_ENOUGH_BROKERS


async def test_who_may_create_in_the_cluster_may_create_any_topic(tmp_path: Path) -> None:
    async with where_acls_count(tmp_path) as (_, ask):
        cluster = {"resource_type": "CLUSTER", "resource_name": "kafka-cluster", "pattern_type": "LITERAL"}
        await create(ask, cluster)
        assert (await ask("POST", "/v1/topics", "User:ann", TOPIC))[1]["error"] == NOT_ENOUGH_BROKERS


async def test_no_acl_gives_raw_bytes_or_the_part_of_a_node(tmp_path: Path) -> None:
    async with where_acls_count(tmp_path) as (_, ask):
        every = {
            "resource_type": "CLUSTER",
            "resource_name": "kafka-cluster",
            "pattern_type": "LITERAL",
            "operation": "ALL",
        }
        await create(ask, every)
        assert (await ask("GET", "/v1/quorum", "User:ann"))[0] == 200
        assert (await ask("GET", "/v1/log?from=0", "User:ann"))[0] == 403
        block = {"broker_id": 11, "broker_epoch": 1}
        assert (await ask("POST", "/v1/producer-ids", "User:ann", block, packed=True))[0] == 403


async def test_where_acls_do_not_count_they_change_nothing(tmp_path: Path) -> None:
    async with where_acls_count(tmp_path, AclSettings()) as (_, ask):
        assert (await create(ask, {}))[0] == 200
        assert (await ask("GET", "/v1/acls", "User:admin"))[1]["enforced"] is False
        assert (await ask("POST", "/v1/topics", "User:ann", TOPIC))[1][
            "error"
        ] == "CLUSTER_AUTHORIZATION_FAILED"


async def test_what_no_acl_concerns_is_allowed_where_the_settings_say_so(tmp_path: Path) -> None:
    settings = AclSettings(enforced=True, allow_everyone_if_no_acl_found=True)
    async with where_acls_count(tmp_path, settings) as (_, ask):
        assert (await ask("DELETE", "/v1/topics/orders", "User:ann"))[0] == 404
        await create(ask, {"principal": "User:bob"})
        assert (await ask("DELETE", "/v1/topics/orders", "User:ann"))[0] == 403
        assert (await ask("DELETE", "/v1/topics/orders", None))[0] == 401
