"""Edge: how a process logs: text on a terminal and in its log file, JSON elsewhere.

One event per line: a name in the past tense and facts as fields, as in
`log.info("broker_fenced", extra={"broker_id": 3})`.
"""

import json
import logging
import logging.handlers
import os
import sys
import threading
from pathlib import Path
from typing import Any, Final

from metadata_log.limits import KIB, MIB
from metadata_log.node.http.foreign_bytes import unquoted
from metadata_log.node.recent_warnings import BY_STRANGER, facts_of
from metadata_log.printable import json_text, printable
from ops.when import time_text

LOG_FILE_BYTES_MAX: Final = 16 * MIB
"""A text log is moved aside (one predecessor kept) when it grows beyond: at most twice this on disk."""
STREAM_VARIABLE: Final = "METAQUORUM_LOG"
"""What goes to stderr: text, json or none; unset: text on a terminal, JSON elsewhere."""
STRANGERS_BYTES_PER_S: Final = 1 * KIB
"""Of the lines that any host that reaches a port may cause: at this pace they replace a whole text log in nine hours."""
STRANGERS_BURST_BYTES: Final = 32 * KIB
"""Room for the beginning of such a flood. The next line says how many were left out."""
STRANGERS_LOGGERS: Final = ("aiohttp", "asyncio")
"""They log what arrives on connections, and errors of handlers with their tracebacks; our own lines say so themselves."""

PROCESS_FAILED: Final = "process_failed"
"""The last line of a log: why the process ended."""


def setup_logging(log_file: Path | None, *, level: int = logging.INFO) -> None:
    """Send the log of this process to stderr, and as text to `log_file` where one is named.

    Raises:
        OSError: the file cannot be opened.
    """
    handlers: list[logging.Handler] = []
    style = os.environ.get(STREAM_VARIABLE) or ("text" if sys.stderr.isatty() else "json")
    if style != "none":
        stream = logging.StreamHandler(sys.stderr)
        stream.setFormatter(TextFormatter() if style == "text" else JsonFormatter())
        # The command itself reports on stderr why it ended, in one line.
        stream.addFilter(lambda record: record.msg != PROCESS_FAILED)
        handlers.append(stream)
    if log_file is not None:
        file = logging.handlers.RotatingFileHandler(
            log_file, maxBytes=LOG_FILE_BYTES_MAX, backupCount=1, encoding="utf-8"
        )
        file.setFormatter(TextFormatter())
        handlers.append(file)
    # A full disk may stop the log, never the process that writes it; logging's own report is a traceback.
    logging.raiseExceptions = False
    root = logging.getLogger()
    for old in list(root.handlers):
        root.removeHandler(old)
        old.close()
    root.setLevel(level)
    strangers = _Strangers()
    for handler in handlers:
        handler.addFilter(strangers)
        root.addHandler(handler)
    # The engine and the HTTP library log every connection; we log those that matter ourselves.
    for noisy in ("asyncio", "aiohttp", "pysyncobj"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    server = logging.getLogger("aiohttp.server")
    for old_filter in [each for each in server.filters if isinstance(each, _ForeignBytes)]:
        server.removeFilter(old_filter)
    server.addFilter(_ForeignBytes())


class _ForeignBytes(logging.Filter):
    """Shortens reports of bytes that are not HTTP.

    The client is at fault, not our code: no traceback helps, and it quotes what the client sent.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        # Not imported: most commands need no HTTP library, and it takes its time.
        if error is not None and type(error).__module__ == "aiohttp.http_exceptions":
            record.levelno, record.levelname = logging.WARNING, "WARNING"
            record.exc_info, record.reason = None, unquoted(error)
        return True


class _Strangers(logging.Filter):
    """Lets lines that strangers cause through while their bytes keep within STRANGERS_BYTES_PER_S, after a burst.

    A flood of them would push all else out of the log. Each handler asks about the same record: all
    get the first answer.
    """

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()
        self._room = float(STRANGERS_BURST_BYTES)
        self._at_s = 0.0
        self._left_out = 0
        self._judged: tuple[logging.LogRecord | None, bool] = (None, True)

    def filter(self, record: logging.LogRecord) -> bool:
        is_foreign = record.name.partition(".")[0] in STRANGERS_LOGGERS
        if not is_foreign and not getattr(record, BY_STRANGER, False):
            return True
        with self._lock:
            judged, admitted = self._judged
            if judged is not record:
                admitted = self._admits(record)
                self._judged = record, admitted
            return admitted

    def _admits(self, record: logging.LogRecord) -> bool:
        passed_s = max(0.0, record.created - self._at_s)  # the calendar may be set back
        self._at_s = record.created
        self._room = min(STRANGERS_BURST_BYTES, self._room + passed_s * STRANGERS_BYTES_PER_S)
        if self._room <= 0:
            self._left_out += 1
            return False
        if self._left_out:
            record.left_out, self._left_out = self._left_out, 0
        self._room -= len(TextFormatter().format(record))
        return True


class TextFormatter(logging.Formatter):
    """`2026-01-01T10:00:00.000Z INFO quorum.controller.upkeep broker_fenced broker_id=3 silent_ms=9001`."""

    def format(self, record: logging.LogRecord) -> str:
        time = time_text(int(record.created * 1000))
        line = f"{time} {record.levelname} {record.name} {record.getMessage()}"
        facts = "".join(f" {name}={_fact(value)}" for name, value in facts_of(record).items())
        return "\n".join([printable(line + facts), *_traceback(self, record)])


class JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": time_text(int(record.created * 1000)),
            "level": record.levelname,
            "logger": record.name,
            "event": record.getMessage(),
            **facts_of(record),
        }
        if traceback := _traceback(self, record):
            line["traceback"] = "\n".join(traceback)
        return json_text(line, default=str)


def _fact(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return json.dumps(text, ensure_ascii=False) if " " in text and isinstance(value, str) else text


def _traceback(formatter: logging.Formatter, record: logging.LogRecord) -> list[str]:
    return formatter.formatException(record.exc_info).splitlines() if record.exc_info else []
