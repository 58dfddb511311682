"""Edge: the log as an analyst reads it: `log = replay.open(PATH)`, then `log.leader_intervals().show()`.

Names are looked up when they are used: Spark's workers import modules below and need neither DuckDB nor the library.
"""

from typing import TYPE_CHECKING, Any

from metadata_log.replay.packages import missing_package

if TYPE_CHECKING:
    from metadata_log.replay.catalog import meanings as describe
    from metadata_log.replay.lakes import Lake
    from metadata_log.replay.lakes import open_lake as lake
    from metadata_log.replay.library import Log
    from metadata_log.replay.library import open_log as open  # noqa: A004 `replay.open`, as `gzip.open`
    from metadata_log.replay.spark_source import register

__all__ = ["Lake", "Log", "describe", "lake", "open", "register"]


def __dir__() -> list[str]:
    return list(__all__)


def __getattr__(name: str) -> Any:
    """Return a name of the library.

    Raises:
        PackageMissing: a package that it needs is not installed.
    """
    try:
        return _found(name)
    except ModuleNotFoundError as error:
        raise missing_package(error) from error


def _found(name: str) -> Any:
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
        case "describe":
            from metadata_log.replay.catalog import meanings

            return meanings
        case _:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
