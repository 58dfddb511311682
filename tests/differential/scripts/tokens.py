"""Pure: lines about delegation tokens: issued, renewed and expired, by those who may and by others, in time and too late."""

from typing import Any

from metadata_log.metadata_versions import TOKENS_FROM
from metadata_log.wire.shapes import INT64_MAX
from tests.differential.scripts.brokers import advance
from tests.differential.scripts.picture import LEFT_OUT, Picture

_DAY_MS = 24 * 3600 * 1000
_NAMES = ("ann", "bob", "carol")
_PERIODS_MS = (LEFT_OUT, LEFT_OUT, -1, 0, 1, 1_000, 60_000, 200_000, 10 * _DAY_MS, INT64_MAX)


def create(picture: Picture) -> None:
    rng = picture.rng
    renewers = [(_kind(picture, 0.93), rng.choice(_NAMES)) for _ in range(rng.choice([0, 0, 1, 1, 2]))]
    owner: dict[str, Any] = {}
    if picture.chance(0.3):
        owner = {
            "owner_principal_type": _kind(picture, 0.9),
            "owner_principal_name": picture.mostly(rng.choice(_NAMES), 0.9, ""),
        }
    picture.emit(
        "CreateDelegationToken",
        principal=_principal(picture),
        renewers=[{"principal_type": kind, "principal_name": name} for kind, name in renewers] or LEFT_OUT,
        max_lifetime_ms=rng.choice([*_PERIODS_MS, -7]),
        **owner,
    )
    is_issued = all(kind == "User" for kind, _ in renewers) and picture.level >= TOKENS_FROM
    picture.tokens += picture.has_tokens and is_issued


def renew(picture: Picture) -> None:
    picture.emit(
        "RenewDelegationToken",
        token=_token(picture),
        principal=_principal(picture),
        renew_period_ms=picture.rng.choice([*_PERIODS_MS, -7]),
    )


def expire(picture: Picture) -> None:
    picture.emit(
        "ExpireDelegationToken",
        token=_token(picture),
        principal=_principal(picture),
        expiry_time_period_ms=picture.rng.choice(
            [*_PERIODS_MS[2:], -7] if picture.chance(0.9) else [LEFT_OUT]
        ),
    )


def some(picture: Picture) -> None:
    """Tell of tokens for a while, and let time pass meanwhile."""
    create(picture)
    actions = picture.rng.choices((create, renew, expire, advance), (1, 4, 3, 2), k=6)
    for action in actions:
        action(picture)


def _kind(picture: Picture, share: float) -> str:
    return picture.mostly("User", share, "Group")


def _principal(picture: Picture) -> str:
    return picture.mostly(f"User:{picture.rng.choice(_NAMES)}", 0.97, "Group:ann")


def _token(picture: Picture) -> str:
    """Return one of the tokens that were issued last, or, seldom, one that was not."""
    newest = picture.tokens
    return f"token#{picture.rng.randint(max(1, newest - 3), max(1, newest)) if picture.chance(0.95) else newest + 1}"
