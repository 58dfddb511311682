"""Pure: lines about access control lists: created, some twice, some refused, and deleted by filters of all kinds."""

from tests.differential.scripts.picture import Picture

_TYPES = ("TOPIC", "GROUP", "CLUSTER", "TRANSACTIONAL_ID", "DELEGATION_TOKEN", "USER")
_OPERATIONS = ("READ", "WRITE", "ALL", "DESCRIBE", "ALTER_CONFIGS", "TWO_PHASE_COMMIT")
_NAMES = ("a", "ab", "abc", "b", "*")
_PRINCIPALS = ("User:ann", "User:bob", "User:*", "Group:x")
_HOSTS = ("*", "10.0.0.1")


def create_acls(picture: Picture) -> None:
    rng = picture.rng
    picture.emit(
        "CreateAcls",
        creations=[
            {
                "resource_type": picture.mostly(rng.choice(_TYPES[:2]), 0.9, rng.choice((*_TYPES, "NONE"))),
                "resource_name": picture.mostly(rng.choice(_NAMES), 0.96, ""),
                "resource_pattern_type": picture.mostly(
                    rng.choice(["LITERAL", "LITERAL", "PREFIXED"]), 0.94, "NONE"
                ),
                "principal": picture.mostly(rng.choice(_PRINCIPALS), 0.95, "nobody"),
                "host": rng.choice(_HOSTS),
                "operation": picture.mostly(rng.choice(_OPERATIONS), 0.95, "NONE"),
                "permission_type": picture.mostly(rng.choice(["ALLOW", "DENY"]), 0.95, "NONE"),
            }
            for _ in range(rng.choice([1, 2, 4]))
        ],
    )


def delete_acls(picture: Picture) -> None:
    rng = picture.rng
    picture.emit(
        "DeleteAcls",
        filters=[
            {
                "resource_type_filter": picture.mostly(rng.choice([None, *_TYPES[:2]]), 0.95, "NONE"),
                "resource_name_filter": rng.choice([None, None, *_NAMES, "abcd"]),
                "pattern_type_filter": picture.mostly(
                    rng.choice([None, "MATCH", "LITERAL", "PREFIXED"]), 0.95, "NONE"
                ),
                "principal_filter": rng.choice([None, *_PRINCIPALS]),
                "host_filter": rng.choice([None, None, *_HOSTS]),
                "operation": picture.mostly(rng.choice([None, None, *_OPERATIONS]), 0.95, "NONE"),
                "permission_type": picture.mostly(rng.choice([None, "ALLOW", "DENY"]), 0.95, "NONE"),
            }
            for _ in range(rng.choice([1, 1, 2]))
        ],
    )
