"""Pure: lines about clients: their quotas, and users' credentials."""

from typing import Any

from tests.differential.scripts.picture import LEFT_OUT, Picture

_USERS = ("ann", "bob", "größe, =")
_RATES = ("producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate")
_CONNECTIONS = "connection_creation_rate"
_MECHANISMS = (1, 1, 2)


def alter_quotas(picture: Picture) -> None:
    rng = picture.rng
    entries = [_entry(picture) for _ in range(rng.choice([1, 1, 1, 2, 3]))]
    if picture.chance(0.05):
        entries.append(entries[0])
    picture.emit("AlterClientQuotas", entries=entries, validate_only=picture.chance(0.06) or LEFT_OUT)


def _entry(picture: Picture) -> dict[str, Any]:
    rng = picture.rng
    user = {"entity_type": "user", "entity_name": rng.choice([*_USERS, None])}
    client = {"entity_type": "client-id", "entity_name": rng.choice(["c1", "c2", None])}
    address = {"entity_type": "ip", "entity_name": rng.choice(["127.0.0.1", "::1", None])}
    entity = rng.choice([[user], [user], [client], [user, client], [client, user], [address]])
    keys = (_CONNECTIONS,) if entity == [address] else _RATES
    if picture.chance(0.06):
        entity = rng.choice(
            [
                [],
                [*entity, address, user],
                [{"entity_type": "user", "entity_name": ""}],
                [{"entity_type": "group", "entity_name": "g"}],
            ]
        )
    changes = [_change(picture, key) for key in rng.sample(keys, min(len(keys), rng.choice([1, 1, 2])))]
    if picture.chance(0.05):
        changes.append(changes[0])
    return {"entity": entity, "ops": changes}


def _change(picture: Picture, key: str) -> dict[str, Any]:
    rng = picture.rng
    if picture.chance(0.1):
        key = rng.choice(["no_such_key", _CONNECTIONS, "producer_byte_rate"])
    if picture.chance(0.25):
        return {"key": key, "remove": True}
    value = rng.choice([1.0, 1_000.0, 1_048_576.0])
    if picture.chance(0.2):
        value = rng.choice([0.0, -1.0, 0.1, 2.5, 2.0**31, 2.0**63, 2.0**64, 1.0000001, 1e300])
    return {"key": key, "value": value}


def alter_credentials(picture: Picture) -> None:
    rng = picture.rng
    fields: dict[str, Any] = {}
    if picture.chance(0.65):
        fields["upsertions"] = [_upsertion(picture) for _ in range(rng.choice([1, 1, 1, 2, 3]))]
    if not fields or picture.chance(0.2):
        fields["deletions"] = [
            {"name": _user(picture), "mechanism": _mechanism(picture)} for _ in range(rng.choice([1, 1, 2]))
        ]
    picture.emit("AlterUserScramCredentials", **fields)


def _user(picture: Picture) -> str:
    return picture.mostly(picture.rng.choice(_USERS), 0.95, "")


def _mechanism(picture: Picture) -> int:
    return picture.mostly(picture.rng.choice(_MECHANISMS), 0.93, picture.rng.choice([0, 3, 99]))


def _upsertion(picture: Picture) -> dict[str, Any]:
    rng = picture.rng
    iterations = rng.choice([4_096, 8_192, LEFT_OUT])
    if picture.chance(0.15):
        iterations = rng.choice([0, 4_095, 16_384, 16_385])
    made = {
        "name": _user(picture),
        "mechanism": _mechanism(picture),
        "iterations": iterations,
        "salt": rng.choice([LEFT_OUT, "salt-2", "größe"]),
        "salted_password": rng.choice([LEFT_OUT, "another", "ä" * 80]),
    }
    return {name: value for name, value in made.items() if value is not LEFT_OUT}
