"""Pure: what the options of `storage format` ask a cluster to be founded with, in the words of `kafka-storage format`.

Source: Kafka's StorageTool and ScramParser of 4.3.1. Tests: tests/unit/ops/test_founding.py.
"""

import base64
import binascii
import random
from typing import Final

from metadata_log.node.identity.scram import ITERATIONS_MAX, ITERATIONS_MIN, keys_of, salt_of, salted
from metadata_log.records.users import MASK_KEY_BYTES, MECHANISMS, UserScramCredentialRecord

_NUMBERS: Final = {name: number for number, name in MECHANISMS.items()}
_LEVEL_MAX: Final = 32_767


def feature_level(text: str) -> tuple[str, int]:
    """Read NAME=LEVEL.

    Raises:
        ValueError: it is something else.
    """
    name, equals, level = text.partition("=")
    if not equals:
        raise ValueError(f"Can't parse feature=level string {text}: equals sign not found.")
    name = name.strip()
    try:
        number = int(level)
    except ValueError:
        number = -1
    if not 0 <= number <= _LEVEL_MAX:
        raise ValueError(f"Can't parse feature=level string {text}: unable to parse {level} as a short.")
    return name, number


def credential(text: str, rng: random.Random) -> UserScramCredentialRecord:
    """Read a credential: MECHANISM=[name=...,password=...], or salt and saltedpassword in base64; iterations may be named.

    The password is hashed here; `rng` draws a salt where none is given.

    Raises:
        ValueError: it is something else.
    """
    mechanism, fields = _fields(text)
    name = fields.pop("name", None)
    if name is None:
        raise ValueError("You must supply 'name' to add-scram")
    salt = _decoded(fields, "salt", "salt")
    iterations = _iterations(fields.pop("iterations", str(ITERATIONS_MIN)), mechanism)
    password, given = fields.pop("password", None), _decoded(fields, "saltedpassword", "saltedPassword")
    if fields:
        raise ValueError(f"Unknown SCRAM configurations: {', '.join(sorted(fields))}")
    if password is None and given is None:
        raise ValueError("You must supply one of 'password' or 'saltedpassword' to add-scram")
    if password is None and salt is None:
        raise ValueError("You must supply 'salt' with 'saltedpassword' to add-scram")
    if salt is None:
        salt = salt_of(rng.getrandbits(256))
    if password is not None:
        given = salted(mechanism, password.encode(), salt, iterations)
    assert given is not None
    return UserScramCredentialRecord(
        name, mechanism, salt, *keys_of(mechanism, given), iterations, rng.randbytes(MASK_KEY_BYTES)
    )


def _fields(text: str) -> tuple[int, dict[str, str]]:
    """Return the mechanism's number, and what stands between the brackets."""
    given = text.strip()
    name, equals, inside = given.partition("=")
    if not equals:
        raise ValueError("Failed to find equals sign in the SCRAM argument")
    if name not in _NUMBERS:
        raise ValueError(f"The add-scram mechanism {name} is not supported.")
    if not inside.startswith("["):
        raise ValueError("Expected configuration string to start with [")
    if not inside.endswith("]"):
        raise ValueError("Expected configuration string to end with ]")
    fields: dict[str, str] = {}
    for component in inside[1:-1].split(","):
        key, equals, value = component.partition("=")
        if not equals:
            raise ValueError("No equals sign found in a SCRAM component")
        is_quoted = len(value) > 1 and value[0] == value[-1] == '"'
        fields[key] = value[1:-1] if is_quoted else value
    return _NUMBERS[name], fields


def _decoded(fields: dict[str, str], key: str, name: str) -> bytes | None:
    text = fields.pop(key, None)
    if text is None:
        return None
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"Failed to decode given {name}: it is no base64") from error


def _iterations(text: str, mechanism: int) -> int:
    try:
        iterations = int(text)
    except ValueError:
        raise ValueError(f"Failed to parse iterations count: {text}") from None
    kafkas_name = MECHANISMS[mechanism].replace("-", "_")
    if iterations < ITERATIONS_MIN:
        raise ValueError(
            f"The 'iterations' value must be >= {ITERATIONS_MIN} for add-scram using {kafkas_name}"
        )
    if iterations > ITERATIONS_MAX:
        raise ValueError(
            f"The 'iterations' value must be <= {ITERATIONS_MAX} for add-scram using {kafkas_name}"
        )
    return iterations
