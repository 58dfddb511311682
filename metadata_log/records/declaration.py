"""Pure: what a record type declares about itself: its number, its versions, its secrets, and how JSON names its fields.

A subject's file declares its records with `@record`; `registry.py` collects them. Fields are positional and append-only:
a new field has a default and begins a new version, and records of older versions are still read.
Tests: tests/unit/metadata_log/records/test_registry.py.
"""

import hashlib
import hmac
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

T = TypeVar("T", bound=type)
R = TypeVar("R", bound=tuple[Any, ...])

Secrets = Mapping[str, Callable[[Any], bool]]
"""By field: whether the value there, which is text, bytes or None, is a secret in a given record."""
NO_SECRETS: Final[Secrets] = {}
_WITHOUT_KEY, _WITH_KEY = "sha256:", "hmac-sha256:"
MASKS: Final = (_WITHOUT_KEY, _WITH_KEY)
"""How masks begin."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """`versions` holds the number of fields of version 0, of version 1, ...; a record is written in the first that says all
    of it. `levels` holds, for each version, the level of metaquorum.version from which on it is written. `mask_key` names
    the field with the key of its secrets' masks, if it has one; it is never shown. `untold_fields` are `secret_fields`, and
    what answers and dumps mask beside them: a secret without a key, that digests have had as it is.
    """

    type_id: int
    versions: tuple[int, ...]
    levels: tuple[int, ...]
    secret_fields: Secrets
    untold_fields: Secrets
    mask_key: str | None = None


_DECLARED: Final[dict[type, Declaration]] = {}
_JSON_NAMES: Final[dict[type, Mapping[str, str]]] = {}


def record(
    *,
    type_id: int,
    secret_fields: Secrets,
    untold_fields: Secrets | None = None,
    versions: tuple[int, ...] | None = None,
    levels: tuple[int, ...] | None = None,
    mask_key: str | None = None,
) -> Callable[[T], T]:
    """Declare a named tuple as a record type: Kafka's number, or one of ours from 1000, never reused.

    `versions` may be left out for a type of one version, `levels` where level 1 of metaquorum.version knows all versions,
    `untold_fields` where they are the secret ones.
    """

    def declare(of: T) -> T:
        fields: tuple[str, ...] = of._fields  # type: ignore[attr-defined]  # a named tuple
        field_counts = (len(fields),) if versions is None else versions
        declaration = Declaration(
            type_id=type_id,
            versions=field_counts,
            levels=(1,) * len(field_counts) if levels is None else levels,
            secret_fields=secret_fields,
            untold_fields=secret_fields if untold_fields is None else untold_fields,
            mask_key=mask_key,
        )
        assert declaration.versions[-1] == len(fields), f"{of.__name__}: the last version has all fields"
        assert len(declaration.levels) == len(field_counts), f"{of.__name__}: each version has a level"
        assert {*secret_fields, *filter(None, [mask_key])} <= set(fields), (
            f"{of.__name__}: a secret that is no field"
        )
        _DECLARED[of] = declaration
        return of

    return declare


def declaration_of(record_type: type) -> Declaration:
    """Return what a record type declares; KeyError for a type that declares nothing."""
    return _DECLARED[record_type]


def json_names(**names: str) -> Callable[[T], T]:
    """Declare how JSON names some fields of a record or of a row inside one."""

    def declare(of: T) -> T:
        _JSON_NAMES[of] = names
        return of

    return declare


def json_names_of(row_type: type) -> Mapping[str, str]:
    return _JSON_NAMES.get(row_type, {})


def shown(record: R) -> R:
    """Return a record as digests and exports show it: each secret masked, and without the masks' key."""
    declaration = _DECLARED[type(record)]
    return _masked(record, declaration, declaration.secret_fields)


def told(record: R) -> R:
    """Return a record as answers and dumps show it: `shown`, with further secrets masked that have no key."""
    declaration = _DECLARED[type(record)]
    return _masked(record, declaration, declaration.untold_fields)


def _masked(record: R, declaration: Declaration, secret_fields: Secrets) -> R:
    if not secret_fields:
        return record
    key_field = declaration.mask_key
    key = None if key_field is None else getattr(record, key_field)
    hidden: dict[str, Any] = {
        name: mask(value, key) if isinstance(value, str) else mask_bytes(value, key)
        for name, is_secret in secret_fields.items()
        if (value := getattr(record, name)) is not None and is_secret(record)
    }
    if not hidden:
        return record
    if key_field is not None:
        hidden[key_field] = None
    replaced: R = record._replace(**hidden)  # type: ignore[attr-defined]
    return replaced


def mask(secret: str, key: bytes | None) -> str:
    """Return what is shown instead of a secret.

    Its reader cannot try guesses against it, because only the record of the secret has the key. Without a key, as earlier
    releases wrote secrets, it is a plain hash.
    """
    if key is None:
        return f"{_WITHOUT_KEY}{hashlib.sha256(secret.encode()).hexdigest()}"
    return mask_text(mask_bytes(secret.encode(), key))


def mask_bytes(secret: bytes, key: bytes | None) -> bytes:
    """Return what is shown instead of secret bytes, which always have a key."""
    assert key is not None, "secret bytes without a key of their masks"
    return hmac.digest(key, secret, hashlib.sha256)


def mask_text(masked: bytes) -> str:
    """Return the mask of secret bytes as text, which says that it is a mask and not the secret."""
    return f"{_WITH_KEY}{masked.hex()}"
