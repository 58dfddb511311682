"""A verb that asks a log does not wait for pandas to be imported."""

import subprocess
import sys

import pytest

from metadata_log.replay import arrow_alone

SCRIPT = f"""
import sys
from {arrow_alone.__name__} import load_arrow_alone

load_arrow_alone()
import metadata_log.replay.library, metadata_log.replay.report
print(sorted({{"pandas", "asyncio", "metadata_log.replay.kafka.log"}} & sys.modules.keys()))
import pandas
print(pandas.Series([1]).sum())
"""


@pytest.mark.slow
def test_what_tells_the_report_imports_neither_pandas_nor_what_reads_other_logs() -> None:
    ran = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    assert ran.stdout.split("\n")[:2] == ["[]", "1"]
