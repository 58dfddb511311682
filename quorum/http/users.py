"""Edge: users' SCRAM credentials over HTTP: list and alter. Tests: tests/unit/quorum/http/test_users.py."""

import base64
import binascii
from typing import Annotated, Any, Final, Literal

from aiohttp import web
from msgspec import Meta

from metadata_log import limits
from metadata_log.errors import InvalidRequest, ResourceNotFound
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.image.users import user_item, users_items
from metadata_log.items import Items
from metadata_log.node.http.routes import NAME
from metadata_log.records.users import MECHANISMS
from metadata_log.wire.shapes import Int32, Shape, check_text, read_shape
from quorum.decide.users import AlterUserScramCredentials, ScramDeletion, ScramUpsertion
from quorum.http.door import Door, Write, carry_out, items_of, results_as
from quorum.http.routes import AS_FRESH, TRIAL, reading, writing

MechanismName = Literal["SCRAM-SHA-256", "SCRAM-SHA-512"]
_NUMBERS: Final = {name: number for number, name in MECHANISMS.items()}


class OneCredential(Shape, frozen=True):
    user: str
    mechanism: MechanismName


class NewCredential(OneCredential, frozen=True):
    """A credential to set; salt and salted password are base64: the password itself is sent to no node."""

    iterations: Int32
    salt: str
    salted_password: str


class ChangedCredentials(Shape, frozen=True):
    deletions: Annotated[tuple[OneCredential, ...], Meta(max_length=limits.REQUEST_ITEMS_MAX)] = ()
    upsertions: Annotated[tuple[NewCredential, ...], Meta(max_length=limits.REQUEST_ITEMS_MAX)] = ()
    all_or_nothing: bool = False


def _changes(body: Any) -> AlterUserScramCredentials:
    wanted = read_shape(body, ChangedCredentials, "users")
    if not wanted.deletions and not wanted.upsertions:
        raise InvalidRequest("users: name a deletion or an upsertion")
    for one in (*wanted.deletions, *wanted.upsertions):
        check_text("users.user", one.user)
    return AlterUserScramCredentials(
        deletions=tuple(ScramDeletion(one.user, _NUMBERS[one.mechanism]) for one in wanted.deletions),
        upsertions=tuple(map(_upsertion, wanted.upsertions)),
        all_or_nothing=wanted.all_or_nothing,
    )


def _upsertion(wanted: NewCredential) -> ScramUpsertion:
    salt = _from_base64("salt", wanted.salt)
    if not salt:
        raise InvalidRequest("users.salt is empty")
    salted_password = _from_base64("salted_password", wanted.salted_password)
    return ScramUpsertion(wanted.user, _NUMBERS[wanted.mechanism], wanted.iterations, salt, salted_password)


def _from_base64(what: str, text: str) -> bytes:
    check_text(f"users.{what}", text)
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise InvalidRequest(f"users.{what} is not base64") from None


async def list_users(door: Door, request: web.Request) -> web.StreamResponse:
    """Answer with the users and what is no secret of their credentials: of all that have some, or of one."""
    name = request.query.get("user")

    def view(image: MetadataImage) -> dict[str, Any]:
        if name is None:
            return items_of(image, Items(len({each for each, _ in image.users}), users_items(image.users)))
        found = [image.users[name, kind] for kind in MECHANISMS if (name, kind) in image.users]
        if not found:
            raise ResourceNotFound(f"user {name!r} has no SCRAM credentials")
        return items_of(image, [user_item(name, found)])

    return await door.read_large(
        request, view, is_large=lambda image: len(image.users) > limits.LARGE_VIEW_ITEMS
    )


WRITES: Final = {"AlterUserScramCredentials": Write(_changes, results_as("users"))}
ROUTES: Final = (
    reading("/v1/users", list_users, "DescribeUserScramCredentials", {**AS_FRESH, "user": NAME}),
    writing(
        "PATCH",
        "/v1/users",
        carry_out(WRITES["AlterUserScramCredentials"]),
        "AlterUserScramCredentials",
        TRIAL,
    ),
)
