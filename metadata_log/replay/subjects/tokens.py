"""Pure: delegation tokens as columns. Tests: tests/unit/metadata_log/replay/test_changes.py."""

from typing import Final

import pyarrow as pa

from metadata_log.records.tokens import DelegationTokenRecord, RemoveDelegationTokenRecord
from metadata_log.replay.subjects.subject import TEXTS, ReplaySubject

SUBJECT: Final = ReplaySubject(
    fields=(
        ("token_id", pa.string(), "the delegation token"),
        ("token_owner", pa.string(), "the principal as which a client with the token acts"),
        ("token_requester", pa.string(), "the principal that asked for the token"),
        ("token_renewers", TEXTS, "the principals that may renew it, beside the owner"),
        ("token_issued_ms", pa.int64(), "when it was issued, Unix ms"),
        ("token_max_ms", pa.int64(), "beyond which it cannot be renewed"),
        ("token_expires_ms", pa.int64(), "when it ends unless it is renewed"),
    ),
    identity=("token_id",),
    key="'token:' || token_id",
    columns={
        DelegationTokenRecord: (
            *("token_id", "token_owner", "token_requester", "token_renewers"),
            *("token_issued_ms", "token_max_ms", "token_expires_ms"),
        ),
        RemoveDelegationTokenRecord: ("token_id",),
    },
    changes=("token_changes",),
    from_column={"token_renewers": tuple},
)
