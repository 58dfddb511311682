"""One Spark session for all tests here: it takes longer to start than most of them to run."""

import logging
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from metadata_log.replay.session import session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    logging.getLogger("py4j").setLevel(logging.WARNING)  # it says good-bye when all streams are closed
    started = session("metaquorum-tests", quick=True)
    yield started
    started.stop()
