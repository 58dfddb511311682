"""Pure: SCRAM credentials as columns; no secret among them, as records come here as they are shown.
Tests: tests/unit/metadata_log/replay/test_changes.py.
"""

from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from metadata_log.records.users import RemoveUserScramCredentialRecord, UserScramCredentialRecord
from metadata_log.replay.subjects.subject import ReplaySubject, UuidTexts


def _hex_column(values: Sequence[bytes], _texts: UuidTexts) -> list[str]:
    return [value.hex() for value in values]


_SECRETS: Final = ("scram_salt", "scram_stored_key", "scram_server_key")
SUBJECT: Final = ReplaySubject(
    fields=(
        ("user_name", pa.string(), "the user, without `User:`"),
        ("scram_mechanism", pa.int32(), "1 SCRAM-SHA-256, 2 SCRAM-SHA-512"),
        ("scram_salt", pa.string(), "the mask of the salt, in hex; empty in Kafka's log"),
        ("scram_stored_key", pa.string(), "the mask of the stored key"),
        ("scram_server_key", pa.string(), "the mask of the server key"),
        ("scram_iterations", pa.int32(), "how often the password was hashed"),
    ),
    identity=("user_name", "scram_mechanism"),
    key="'user:' || user_name || ' ' || scram_mechanism",
    columns={
        UserScramCredentialRecord: ("user_name", "scram_mechanism", *_SECRETS, "scram_iterations", None),
        RemoveUserScramCredentialRecord: ("user_name", "scram_mechanism"),
    },
    changes=("user_changes",),
    to_column=dict.fromkeys(_SECRETS, _hex_column),
    from_column=dict.fromkeys(_SECRETS, bytes.fromhex),
)
