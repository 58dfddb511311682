"""Edge: the log as an analyst reads it: `log = replay.open(PATH)`, then `log.leader_intervals().show()`.

Names are looked up when they are used: Spark's workers import modules below and need neither DuckDB nor the library.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from metadata_log.replay.lakes import Lake
    from metadata_log.replay.lakes import open_lake as lake
    from metadata_log.replay.library import Log
    from metadata_log.replay.library import open_log as open  # noqa: A004 `replay.open`, as `gzip.open`
    from metadata_log.replay.spark_source import register

__all__ = ["Lake", "Log", "lake", "open", "register"]


def __getattr__(name: str) -> Any:
    match name:
        case "Lake":
            from metadata_log.replay.lakes import Lake

            return Lake
        case "lake":
            from metadata_log.replay.lakes import open_lake

            return open_lake
        case "Log":
            from metadata_log.replay.library import Log

            return Log
        case "open":
            from metadata_log.replay.library import open_log

            return open_log
        case "register":
            from metadata_log.replay.spark_source import register

            return register
        case _:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
