"""Pure: answers of scripts in the form in which two controllers' answers are equal.

Error texts and times are left out; broker epochs, which are offsets, are numbered in order of appearance; records of one
type that stand side by side are sorted by what they are about, because Kafka takes them from hash maps. Ids of delegation
tokens are random, so of an HMAC counts whether it is the one that follows from the id and from SECRET_KEY.
"""

import base64
import json
from collections.abc import Mapping
from typing import Any, Final

from quorum.controller.token_hmacs import TokenHmacs

SECRET_KEY: Final = "the secret key of all scripts"
_LEFT_OUT: Final = ("message", "times_ms", "time_ms", "next_offset")
_KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    "PARTITION_RECORD": ("topic_id", "partition_id"),
    "PARTITION_CHANGE_RECORD": ("topic_id", "partition_id"),
    "CONFIG_RECORD": ("resource_type", "resource_name", "name"),
    "CLEAR_ELR_RECORD": ("topic_name",),
    "CLIENT_QUOTA_RECORD": ("entity", "key"),
    "USER_SCRAM_CREDENTIAL_RECORD": ("name", "mechanism"),
    "REMOVE_USER_SCRAM_CREDENTIAL_RECORD": ("name", "mechanism"),
    "REMOVE_ACCESS_CONTROL_ENTRY_RECORD": ("id",),
    "REMOVE_DELEGATION_TOKEN_RECORD": ("token_id",),
}
_OTHER_NAMES: Final = {"ZERO": "MIGRATING"}
"""The id of a directory that nobody reported is also the one of no topic."""


class Normal:
    """The answers to one script, one after the other."""

    def __init__(self) -> None:
        self._epochs: dict[int, int] = {}

    def answer(self, answer: Mapping[str, Any]) -> Any:
        return {
            name: [self._batch(batch) for batch in value] if name == "batches" else self._plain(value)
            for name, value in answer.items()
            if name not in _LEFT_OUT
        }

    def _batch(self, records: list[dict[str, Any]]) -> list[Any]:
        plain = [self._plain(record) for record in records]
        at = 0
        while at < len(plain):
            kind, end = plain[at]["type"], at
            while end < len(plain) and plain[end]["type"] == kind:
                end += 1
            keys = _KEYS.get(kind, ())
            plain[at:end] = sorted(
                plain[at:end], key=lambda record: [json.dumps(record[key]) for key in keys]
            )
            at = end
        return plain

    def _plain(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self._plain(item) for item in value]
        if not isinstance(value, dict):
            return _OTHER_NAMES.get(value, value)
        if "hmac" in value:
            value = _with_checked_hmac(value)
        return {
            name: self._epoch(item) if name == "broker_epoch" else self._plain(self._in_order(name, item))
            for name, item in value.items()
            if name not in _LEFT_OUT
        }

    def _epoch(self, value: int) -> int:
        return value if value < 0 else self._epochs.setdefault(value, len(self._epochs))

    @staticmethod
    def _in_order(name: str, item: Any) -> Any:
        return sorted(item, key=lambda feature: str(feature["name"])) if name == "features" else item


def _with_checked_hmac(issued: Mapping[str, Any]) -> dict[str, Any]:
    rest = dict(issued)
    token_id, token_hmac = rest.pop("raw_token_id"), base64.b64decode(rest.pop("hmac"))
    hmacs = TokenHmacs()
    hmacs.use(SECRET_KEY.encode())
    return rest | {"hmac_follows": token_hmac == hmacs.hmac_of(token_id)}
