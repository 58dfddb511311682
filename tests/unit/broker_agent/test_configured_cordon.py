"""`cordoned.log.dirs` of a broker, and of all, become what the broker reports; nothing else does."""

from collections.abc import Iterable

import pytest

from broker_agent.configured_cordon import ConfiguredCordon
from metadata_log.apply import apply
from metadata_log.ids import BrokerId, Uuid
from metadata_log.image.metadata_image import EMPTY, MetadataImage
from metadata_log.records.configs import BROKER, ConfigRecord
from tests.support.histories import claim, step_of

ONE, OTHER = Uuid(b"1" * 16), Uuid(b"2" * 16)


class Broker:
    def __init__(self) -> None:
        self.reported: list[frozenset[Uuid]] = []
        self.unknown: list[list[str]] = []
        self.image: MetadataImage = step_of(EMPTY, [claim(EMPTY)]).image
        self.cordon = ConfiguredCordon(
            BrokerId(11),
            directories=lambda: {"/data/1": ONE, "/data/2": OTHER},
            cordon=self._report,
            on_unknown=lambda named: self.unknown.append([*named]),
        )

    def _report(self, cordoned: Iterable[Uuid]) -> None:
        self.reported.append(frozenset(cordoned))

    def sets(self, name: str, value: str | None, key: str = "cordoned.log.dirs") -> None:
        """Follow the log over one change of a setting."""
        step = step_of(self.image, [ConfigRecord(BROKER, name, key, value)])
        applied = apply(self.image, step.batch)
        self.cordon.on_delta(self.image, applied.image, applied.delta)
        self.image = applied.image


@pytest.mark.parametrize(
    ("value", "cordoned"),
    [("*", {ONE, OTHER}), ("/data/1", {ONE}), ("/data/2, /data/1", {ONE, OTHER}), (" * ", {ONE, OTHER})],
)
def test_the_named_directories_are_reported_and_released(value: str, cordoned: set[Uuid]) -> None:
    broker = Broker()
    broker.sets("11", value)
    broker.sets("11", None)
    assert broker.reported == [cordoned, frozenset()]


def test_a_brokers_own_value_counts_before_the_cluster_wide_one() -> None:
    broker = Broker()
    broker.sets("", "*")
    broker.sets("11", "/data/2")
    broker.sets("11", "")
    broker.sets("11", None)
    broker.sets("", None)
    assert broker.reported == [{ONE, OTHER}, {OTHER}, frozenset(), {ONE, OTHER}, frozenset()]


@pytest.mark.parametrize("value", ["", "/elsewhere", "/data", "/data/1/"])
def test_what_names_no_directory_of_the_broker_reports_nothing(value: str) -> None:
    broker = Broker()
    broker.sets("11", value)
    broker.sets("12", "*")
    broker.sets("11", "1", key="log.cleaner.threads")
    assert broker.reported == []


def test_paths_in_a_brokers_own_setting_that_are_no_directories_of_it_are_told_once() -> None:
    broker = Broker()
    broker.sets("", "/elsewhere")  # another broker's
    broker.sets("11", "/data/1/,/data/2")
    broker.sets("", "*")
    broker.sets("11", "*")
    broker.sets("11", "/data/1/")
    assert broker.unknown == [["/data/1/"], ["/data/1/"]]


def test_a_start_reads_the_setting_off_the_whole_image() -> None:
    before = Broker()
    before.sets("11", "/data/1")
    after = Broker()
    after.cordon.on_delta(EMPTY, before.image, None)
    assert after.reported == [{ONE}]
