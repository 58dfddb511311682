"""Pure: declarations of record types: rows of every version, hidden secrets, JSON by annotation."""

import hmac
import inspect
from typing import Any, NamedTuple

import pytest

from metadata_log.errors import UnsupportedVersion
from metadata_log.ids import BrokerId, NodeId, TopicId, Uuid, uuid_text
from metadata_log.records.brokers import BrokerEndpoint, FeatureRange, RegisterBrokerRecord
from metadata_log.records.configs import BROKER, ConfigRecord
from metadata_log.records.declaration import NO_SECRETS, declaration_of, mask, record, shown, told
from metadata_log.records.partitions import PartitionChangeRecord
from metadata_log.records.quorum import Voter, VoterEndpoint, VotersRecord
from metadata_log.records.registry import (
    RECORD_TYPES,
    SUBJECTS,
    TYPE_IDS,
    from_row,
    from_rows,
    to_json,
    to_row,
    version_of,
)
from metadata_log.records.rows import reader_of
from metadata_log.records.topics import TopicRecord

SECRET = "hunter2"


class Grown(NamedTuple):
    """A record whose second version added a field, and whose third added another."""

    name: str
    level: int = 7
    note: str | None = None


def test_every_record_of_a_subject_is_in_the_registry() -> None:
    """Goal: no record is forgotten. Method: every class named so in a subject's file."""
    written = {
        of
        for subject in SUBJECTS
        for name, of in inspect.getmembers(subject, inspect.isclass)
        if name.endswith("Record") and of.__module__ == subject.__name__
    }
    assert written == set(RECORD_TYPES)
    assert len(set(TYPE_IDS.values())) == len(RECORD_TYPES)


def test_a_record_is_written_in_the_first_version_that_says_all_of_it() -> None:
    for of in RECORD_TYPES:
        assert declaration_of(of).versions[-1] == len(of._fields)
    assert to_row(PartitionChangeRecord(TopicId(b"t"), 1))[:2] == (5, 0)
    setting = ConfigRecord(BROKER, "1", "log.retention.ms", "5")
    assert to_row(setting) == (4, 0, BROKER, "1", "log.retention.ms", "5")
    keyed = setting._replace(name="ssl.keystore.password", mask_key=bytes(16))
    assert to_row(keyed) == (4, 1, BROKER, "1", "ssl.keystore.password", "5", bytes(16))
    assert (version_of(setting), version_of(keyed)) == (0, 1)
    for written in (setting, keyed, setting._replace(value=None)):
        assert from_row(to_row(written)) == written
        assert from_rows((to_row(written),) * 5) == (written,) * 5


@pytest.mark.parametrize(
    ("of", "field"),
    [
        (of, at)
        for of in RECORD_TYPES
        for at in range(len(of._fields))
        if len(declaration_of(of).versions) > 1
    ],
)
def test_the_last_field_that_is_no_default_chooses_the_version(of: type[Any], field: int) -> None:
    versions = declaration_of(of).versions
    values: list[Any] = [of._field_defaults.get(name, 1) for name in of._fields]
    values[field] = "no default"
    expected = next(version for version, count in enumerate(versions) if count > max(field, versions[0] - 1))
    assert version_of(of._make(values)) == expected


@pytest.mark.parametrize(
    ("field_count", "row", "expected"),
    [
        (1, ("a",), Grown("a")),
        (2, ("a", 1), Grown("a", 1)),
        (3, ("a", 1, "n"), Grown("a", 1, "n")),
        (3, ("a", 1, None), Grown("a", 1)),
    ],
)
def test_a_row_of_an_older_version_gets_the_defaults_of_later_fields(
    field_count: int, row: tuple[object, ...], expected: Grown
) -> None:
    assert reader_of(Grown, led_by=2, field_count=field_count)((9, 0, *row)) == expected


@pytest.mark.parametrize(
    ("field_count", "row"), [(1, ("a", 1)), (2, ("a",)), (3, ("a", 1)), (2, ("a", True))]
)
def test_a_row_of_another_length_than_its_versions_is_refused(
    field_count: int, row: tuple[object, ...]
) -> None:
    with pytest.raises(ValueError, match="Grown"):
        reader_of(Grown, led_by=2, field_count=field_count)((9, 0, *row))


def test_a_declaration_that_contradicts_its_type_ends_the_import() -> None:
    with pytest.raises(AssertionError, match="the last version has all fields"):
        record(type_id=4000, secret_fields=NO_SECRETS, versions=(1, 2))(Grown)
    with pytest.raises(AssertionError, match="a secret that is no field"):
        record(type_id=4000, secret_fields={"password": lambda _: True})(Grown)


def test_a_secret_is_hidden_wherever_a_record_is_shown() -> None:
    setting = ConfigRecord(BROKER, "1", "ssl.keystore.password", SECRET)
    assert shown(setting).value == mask(SECRET, None)
    assert SECRET not in repr(to_json(setting))
    keyed = setting._replace(mask_key=b"k" * 16)
    assert shown(keyed) == setting._replace(value=mask(SECRET, b"k" * 16))
    assert to_json(keyed).keys() == {"resource_type", "resource_name", "name", "value"}
    assert (
        mask(SECRET, b"k" * 16) == f"hmac-sha256:{hmac.new(b'k' * 16, SECRET.encode(), 'sha256').hexdigest()}"
    )
    plain = setting._replace(name="log.retention.ms")
    assert shown(plain) is told(plain) is plain
    of_a_plugin = setting._replace(name="of.a.plugin")
    assert shown(of_a_plugin) is of_a_plugin, "digests of older logs stay as they were"
    assert SECRET not in repr(to_json(of_a_plugin))
    deleted = setting._replace(value=None)
    assert shown(deleted) is deleted
    change = PartitionChangeRecord(TopicId(b"t" * 16), 1)
    assert shown(change) is change


def test_json_follows_the_annotations() -> None:
    directory = Uuid(bytes(range(16)))
    broker = RegisterBrokerRecord(
        broker_id=BrokerId(1),
        incarnation_id=directory,
        broker_epoch=7,
        endpoints=(BrokerEndpoint("PLAINTEXT", "h", 9092, 0),),
        features=(FeatureRange("metadata.version", 1, 30),),
        rack=None,
        fenced=True,
        in_controlled_shutdown=False,
        log_dirs=(directory,),
        cordoned_log_dirs=None,
    )
    shown_broker = to_json(broker)
    assert shown_broker["incarnation_id"] == uuid_text(directory)
    assert shown_broker["log_dirs"] == [uuid_text(directory)]
    assert shown_broker["cordoned_log_dirs"] is None
    assert shown_broker["endpoints"] == [
        {"name": "PLAINTEXT", "host": "h", "port": 9092, "security_protocol": 0}
    ]
    assert shown_broker["features"] == [{"name": "metadata.version", "min": 1, "max": 30}]
    voter = Voter(NodeId(1), directory, (VoterEndpoint("CONTROLLER", "h", 9093),), 0, 1)
    assert to_json(VotersRecord((voter,)))["voters"] == [
        {
            "id": 1,
            "directory_id": uuid_text(directory),
            "endpoints": [{"name": "CONTROLLER", "host": "h", "port": 9093}],
            "min": 0,
            "max": 1,
        }
    ]


SOUND = [to_row(PartitionChangeRecord(TopicId(bytes(16)), n, leader=BrokerId(n))) for n in range(6)]


@pytest.mark.parametrize(
    "fault",
    [
        None,
        5,
        b"four",
        (),
        (1,),
        ([], 0),
        (True, 0, *SOUND[0][2:]),
        (SOUND[0][0], False, *SOUND[0][2:]),
        (SOUND[0][0], 99, *SOUND[0][2:]),
        SOUND[0][:-1],
        (*SOUND[0], None),
        (*SOUND[0][:3], "1", *SOUND[0][4:]),
        (*SOUND[0][:3], True, *SOUND[0][4:]),
        (*SOUND[0][:2], "text", *SOUND[0][3:]),
    ],
    ids=repr,
)
@pytest.mark.parametrize("place", [0, 3, 6])
def test_rows_are_read_at_once_as_they_are_one_by_one(fault: Any, place: int) -> None:
    """Goal: speed changes no refusal. Method: one faulty row at the beginning, in the middle, at the end of a run."""
    other = to_row(TopicRecord(TopicId(bytes(16)), "t"))
    rows = (*SOUND[:place], *([] if fault is None else [fault]), *SOUND[place:], other, *SOUND)
    outcomes = list[str]()
    for read in (from_rows, lambda all_rows: tuple(map(from_row, all_rows))):
        try:
            outcomes.append(repr(read(rows)))
        except (ValueError, UnsupportedVersion) as error:
            outcomes.append(repr(error))
    assert outcomes[0] == outcomes[1]
