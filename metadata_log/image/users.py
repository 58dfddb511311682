"""Pure: the users' SCRAM credentials as the log has made them. Tests: tests/property/test_folding.py."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, TypeAlias

import immutables

from metadata_log.digest import hex_of_text
from metadata_log.image.subject import Builders, SubjectBuilder
from metadata_log.items import Items
from metadata_log.orders import in_parts
from metadata_log.records.declaration import shown
from metadata_log.records.registry import Record
from metadata_log.records.users import (
    MECHANISMS,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)

if TYPE_CHECKING:
    from metadata_log.image.metadata_image import Delta

CredentialKey: TypeAlias = tuple[str, int]
"""The user's name and the mechanism."""
UsersImage: TypeAlias = "immutables.Map[CredentialKey, UserScramCredentialRecord]"


class UsersBuilder(SubjectBuilder[UsersImage]):
    FIELD = "users"

    def __init__(self, before: UsersImage, others: Builders) -> None:
        super().__init__(before, others)
        self._credentials = before.mutate()
        self._touched: set[CredentialKey] = set()

    def put(self, record: UserScramCredentialRecord) -> None:
        self._credentials[record.name, record.mechanism] = record
        self._touched.add((record.name, record.mechanism))

    def remove(self, record: RemoveUserScramCredentialRecord) -> None:
        del self._credentials[record.name, record.mechanism]
        self._touched.add((record.name, record.mechanism))

    STATES = {UserScramCredentialRecord: put}  # noqa: RUF012 (a ClassVar of the base)
    CHANGES = {RemoveUserScramCredentialRecord: remove}  # noqa: RUF012

    def finish(self) -> UsersImage:
        return self._credentials.finish()

    def delta(self) -> dict[str, Any]:
        return {"users": frozenset(self._touched)}

    @staticmethod
    def touched_lines(image: UsersImage, touched: "Delta") -> Iterator[str]:
        return (_line(image[key]) for key in touched.users if key in image)

    @staticmethod
    def lines(image: UsersImage) -> Iterator[str]:
        return map(_line, image.values())

    @staticmethod
    def records(image: UsersImage) -> Iterator[Record]:
        return (image[key] for key in in_parts(image))

    @staticmethod
    def view(image: UsersImage) -> dict[str, Any]:
        return {"users": Items(len({name for name, _ in image}), users_items(image))}


def users_items(image: UsersImage) -> Iterator[dict[str, Any]]:
    """Yield the users with the mechanisms and iterations of their credentials, which are no secrets."""
    for name, keys in groupby(in_parts(image), key=lambda key: key[0]):
        yield user_item(name, [image[key] for key in keys])


def user_item(name: str, credentials: Sequence[UserScramCredentialRecord]) -> dict[str, Any]:
    return {
        "user": name,
        "credentials": [
            {
                "mechanism": MECHANISMS.get(each.mechanism, str(each.mechanism)),
                "iterations": each.iterations,
            }
            for each in credentials
        ],
    }


def _line(credential: UserScramCredentialRecord) -> str:
    name, mechanism, salt, stored_key, server_key, iterations, _ = shown(credential)
    masks = "|".join(mask.hex() for mask in (salt, stored_key, server_key))
    return f"s|{hex_of_text(name)}|{mechanism}|{masks}|{iterations}"
