"""Pure: how strangers' values are read."""

import pytest

from metadata_log.wire.fields import is_host


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        ("localhost", True),
        ("c4_a.example.", True),
        ("bücher.example", True),
        ("127.0.0.1", True),
        ("::1", True),
        ("fe80::1%eth0", True),
        ("x" * 63, True),
        ("x" * 64, False),
        ("ctl4..example", False),
        (".example", False),
        (".", False),
        ("", False),
        ("ho st", False),
        ("ho\tst", False),
        ("ho\x00st", False),
        ("ho\u00a0st", False),
        ("\udc80", False),
    ],
)
def test_what_a_host_may_be_called(text: str, is_one: bool) -> None:
    assert is_host(text) is is_one
