"""Pure: equal commands and equal outcomes have one canonical form, whichever protocol they arrived by."""

import hashlib
from collections.abc import Mapping
from typing import Any

import msgpack
import msgspec
import pytest

from metadata_log.ids import BrokerId, NodeId, TopicId, Uuid
from metadata_log.image.partitions import PartitionImage
from metadata_log.records.configs import BROKER, TOPIC
from metadata_log.wire.commands import Command
from quorum.decide.brokers import BrokerRegistered, BrokerUnregistered
from quorum.decide.canonical import idempotency_key, pack_outcome, unpack_outcome
from quorum.decide.configs import (
    AlterConfigs,
    ConfigChange,
    ConfigOperation,
    ConfigsAltered,
    IncrementalAlterConfigs,
    ResourceChange,
)
from quorum.decide.decision import Outcome
from quorum.decide.placement import Placement
from quorum.decide.quorum import AddVoter, VoterIdentity, VotersChanged
from quorum.decide.topic_outcomes import TopicCreated
from quorum.decide.topics import CreateTopic, CreateTopics, DeleteTopics, NewTopic, TopicDeleted

ID = Uuid(bytes(range(16)))
PARTITION = PartitionImage(
    (BrokerId(1), BrokerId(2)), (BrokerId(1),), BrokerId(1), 0, 0, 0, (), (), (), (), (ID, ID)
)


@pytest.mark.parametrize(
    "outcome",
    [
        BrokerRegistered(7),
        BrokerUnregistered(BrokerId(3)),
        ConfigsAltered(BROKER, "", (("a", "1"), ("b", "2"))),
        TopicCreated("t", TopicId(ID), (("retention.ms", "5"),), (PARTITION, PARTITION)),
        TopicCreated("t", None, (), ()),
        TopicDeleted("t", TopicId(ID)),
        VotersChanged((VoterIdentity(NodeId(1), ID),)),
    ],
)
def test_an_outcome_comes_back_as_it_was_stored(outcome: Outcome) -> None:
    again = unpack_outcome(type(outcome), pack_outcome(outcome))
    assert again == outcome
    assert type(again) is type(outcome)


@pytest.mark.parametrize("stored", [b"", b"\xc1", b"\x80", b"\x92\x01\x02", b"\x91\xa1x"])
def test_what_is_no_outcome_is_refused(stored: bytes) -> None:
    with pytest.raises(ValueError, match=r"stored outcome|BrokerRegistered"):
        unpack_outcome(BrokerRegistered, stored)


def altered(**changes: object) -> AlterConfigs:
    fields: dict[str, object] = {
        "resource_type": BROKER,
        "resource_name": "",
        "set": {"a": "1", "b": "2"},
        "unset": (),
    }
    return AlterConfigs(**(fields | changes))  # type: ignore[arg-type]  # plain values on purpose


def test_equal_commands_have_one_key_however_their_maps_were_built() -> None:
    one = idempotency_key(ID, "IncrementalAlterConfigs", altered())
    assert one == idempotency_key(ID, "IncrementalAlterConfigs", altered(set={"b": "2", "a": "1"}))
    others = [
        idempotency_key(ID, "IncrementalAlterConfigs", altered(set={"a": "1"})),
        idempotency_key(ID, "IncrementalAlterConfigs", altered(resource_name="1")),
        idempotency_key(ID, "AnotherOperation", altered()),
    ]
    assert len({one.sha256, *(other.sha256 for other in others)}) == 4


def test_every_kind_of_field_has_a_canonical_form() -> None:
    creation = CreateTopic(
        name="t",
        partitions=-1,
        replication_factor=-1,
        assignment=((BrokerId(1),),),
        configs={},
        validate_only=False,
    )
    addition = AddVoter(
        voter_id=NodeId(4), directory_id=ID, host="h", port=1, validate_only=False, replaces=None
    )
    assert idempotency_key(ID, "CreateTopics", creation).sha256 != idempotency_key(ID, "x", addition).sha256


@pytest.mark.parametrize(
    "command",
    [
        altered(set={"b": "2", "a": "1", "\U0001f600": "3", "\uffff": "4", "": "5"}, unset=("z", "c")),
        AddVoter(
            voter_id=NodeId(4), directory_id=ID, host="h", port=65_535, validate_only=False, replaces=None
        ),
        CreateTopics(
            topics=(
                NewTopic(
                    "t", 3, -1, ((0, (BrokerId(1), BrokerId(2))),), {"z": None, "a": "1"}, Placement.PLAIN
                ),
                NewTopic("u" * 300),
            ),
            validate_only=True,
        ),
        DeleteTopics(topics=("t", TopicId(ID)), all_or_nothing=True),
        IncrementalAlterConfigs(
            resources=(
                ResourceChange(TOPIC, "t", (ConfigChange("a", ConfigOperation.APPEND, "x"),)),
                ResourceChange(BROKER, "", (ConfigChange("b", ConfigOperation.DELETE, None),)),
            ),
            validate_only=False,
        ),
    ],
)
def test_a_key_is_the_hash_of_msgpack_of_the_sorted_fields(command: Command) -> None:
    """The log keeps these hashes: a repetition finds its answer only if each release computes them alike."""
    fields = in_order(msgspec.to_builtins(command, builtin_types=(bytes,)))
    expected = hashlib.sha256(msgpack.packb(["Operation", fields])).digest()
    assert idempotency_key(ID, "Operation", command).sha256 == expected


def in_order(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: in_order(item) for key, item in sorted(value.items())}
    return [in_order(item) for item in value] if isinstance(value, list | tuple) else value
