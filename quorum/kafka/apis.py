"""Edge: the table of requests that a controller answers, from each subject's file.

Tests: tests/unit/quorum/kafka/test_cluster.py.
"""

from collections.abc import Iterator, Mapping
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Final

from metadata_log.records.registry import subject_names
from quorum.kafka.door import Api

NOT_OF_ONE_SUBJECT: Final = (
    *("cluster", "elections", "envelope", "fetch"),
    *("login", "reassignments", "refused"),
)
"""Files of this folder beside those that have the name of a subject of the log."""


def _files() -> Iterator[ModuleType]:
    """Yield the files with APIS. A subject's is found by its name."""
    for name in (*subject_names(), *NOT_OF_ONE_SUBJECT):
        module = f"quorum.kafka.{name}"
        if find_spec(module) is not None:
            yield import_module(module)


APIS: Final[Mapping[int, Api]] = {api.key: api for file in _files() for api in file.APIS}
"""By key."""
