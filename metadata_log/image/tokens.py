"""Pure: the delegation tokens as the log has made them. Tests: tests/property/test_folding.py."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

import immutables

from metadata_log.digest import hex_of_text
from metadata_log.image.subject import Builders, SubjectBuilder
from metadata_log.items import Items
from metadata_log.orders import in_parts
from metadata_log.records.registry import Record
from metadata_log.records.tokens import DelegationTokenRecord, RemoveDelegationTokenRecord

if TYPE_CHECKING:
    from metadata_log.image.metadata_image import Delta

TokensImage: TypeAlias = "immutables.Map[str, DelegationTokenRecord]"
"""By id."""


class TokensBuilder(SubjectBuilder[TokensImage]):
    FIELD = "tokens"

    def __init__(self, before: TokensImage, others: Builders) -> None:
        super().__init__(before, others)
        self._tokens = before.mutate()
        self._touched: set[str] = set()

    def put(self, record: DelegationTokenRecord) -> None:
        self._tokens[record.token_id] = record
        self._touched.add(record.token_id)

    def remove(self, record: RemoveDelegationTokenRecord) -> None:
        # Kafka's sweep may remove a token once more that a request removes meanwhile.
        self._tokens.pop(record.token_id, None)
        self._touched.add(record.token_id)

    STATES = {DelegationTokenRecord: put}  # noqa: RUF012 (a ClassVar of the base)
    CHANGES = {RemoveDelegationTokenRecord: remove}  # noqa: RUF012

    def finish(self) -> TokensImage:
        return self._tokens.finish()

    def delta(self) -> dict[str, Any]:
        return {"tokens": frozenset(self._touched)}

    @staticmethod
    def touched_lines(image: TokensImage, touched: "Delta") -> Iterator[str]:
        return (_line(image[key]) for key in touched.tokens if key in image)

    @staticmethod
    def lines(image: TokensImage) -> Iterator[str]:
        return map(_line, image.values())

    @staticmethod
    def records(image: TokensImage) -> Iterator[Record]:
        return (image[key] for key in in_parts(image))

    @staticmethod
    def view(image: TokensImage) -> dict[str, Any]:
        return {"tokens": Items(len(image), (token_item(image[key]) for key in in_parts(image)))}


def token_item(token: DelegationTokenRecord) -> dict[str, Any]:
    """Return a token as HTTP shows it, without the HMAC that logs in."""
    return {**token._asdict(), "renewers": [*token.renewers]}


def _line(token: DelegationTokenRecord) -> str:
    named = "|".join(map(hex_of_text, (token.token_id, token.owner, token.requester)))
    renewers = ",".join(map(hex_of_text, token.renewers))
    times = f"{token.issue_timestamp_ms}|{token.max_timestamp_ms}|{token.expiry_timestamp_ms}"
    return f"k|{named}|{renewers}|{times}"
