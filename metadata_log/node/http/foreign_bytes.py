"""Pure: why bytes are not HTTP, as aiohttp says it, without the bytes.

aiohttp quotes what the client sent, which may be a token, or the body of a request whose length was wrong. None of that
belongs in a log, or in an answer that a proxy may keep. Tests: tests/unit/metadata_log/node/http/test_server.py.
"""

import re
from typing import Final

_QUOTED: Final = re.compile(r"""(?<!\w)b?['"]""")


def unquoted(error: BaseException) -> str:
    """Return the reason in an error of aiohttp; of some errors the bytes are all that they say."""
    said = str(error)
    message = " ".join(_QUOTED.split(said, maxsplit=1)[0].split()).rstrip(":")
    is_all_quoted = type(error).__name__ == "InvalidURLError"
    return type(error).__name__ if is_all_quoted else message
