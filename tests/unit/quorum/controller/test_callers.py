"""Edge: one step stands between reading a command and deciding it, whichever door the command came through."""

import asyncio
from collections.abc import Iterable
from dataclasses import replace

import pytest

from metadata_log.errors import AuthenticationFailed, NotAuthorized
from metadata_log.ids import BrokerId
from metadata_log.node.identity.rights import ANYBODY, CONTROLLER, NOBODY, ROLES, Node, Principal, Right
from metadata_log.node.identity.rights import BROKER as BROKER_KIND
from metadata_log.records.acls import AclOperation
from metadata_log.records.configs import BROKER, TOPIC
from metadata_log.wire.commands import AllocateProducerIds, Command
from metadata_log.wire.fetch import OBSERVER
from quorum.controller.callers import Caller, authorize, authorize_command, authorize_poll
from quorum.decide.access import CLUSTER, Resource, topic_resource
from quorum.decide.brokers import UnregisterBroker
from quorum.decide.configs import AlterConfigs, IncrementalAlterConfigs, ResourceChange
from quorum.decide.deleted_topics import UndeleteTopics
from quorum.decide.partitions import ElectLeaders
from quorum.decide.registry import DECISIONS, OPERATIONS
from quorum.decide.topics import CreatePartitions, DeleteTopic, DeleteTopics, MorePartitions
from tests.support.callers import anybody
from tests.support.decisions import World
from tests.support.lab import Lab, poll, setting, spin

BLOCK = AllocateProducerIds(broker_id=BrokerId(11), broker_epoch=5)
ALICE = Caller(Principal("User:alice", ROLES["admin"]), "192.0.2.1")
BROKER_11 = Caller(Principal("Broker:11", ROLES["broker"]), "192.0.2.2")


def altered(resource_type: int, name: str) -> AlterConfigs:
    return AlterConfigs(resource_type=resource_type, resource_name=name, set={}, unset=())


@pytest.mark.parametrize(
    ("command", "does", "resources"),
    [
        (DeleteTopic(name="t"), AclOperation.DELETE, [topic_resource("t")]),
        (altered(TOPIC, "t"), AclOperation.ALTER_CONFIGS, [topic_resource("t")]),
        (altered(BROKER, "11"), AclOperation.ALTER_CONFIGS, [CLUSTER]),
        (
            IncrementalAlterConfigs(
                resources=(ResourceChange(TOPIC, "t", ()), ResourceChange(BROKER, "", ())),
                validate_only=False,
            ),
            AclOperation.ALTER_CONFIGS,
            [topic_resource("t"), CLUSTER],
        ),
        (
            CreatePartitions(topics=(MorePartitions("t", 2, None),), validate_only=False),
            AclOperation.ALTER,
            [topic_resource("t")],
        ),
        (UndeleteTopics(topics=("t",)), AclOperation.CREATE, [topic_resource("t")]),
        (ElectLeaders(unclean=True, partitions=None), AclOperation.ALTER, [CLUSTER]),
        (UnregisterBroker(broker_id=BrokerId(11)), AclOperation.ALTER, [CLUSTER]),
        (BLOCK, AclOperation.CLUSTER_ACTION, [CLUSTER]),
    ],
)
def test_a_command_names_its_resources_as_kafka_does(
    command: Command, does: AclOperation, resources: list[Resource]
) -> None:
    access = DECISIONS[type(command)].access
    assert (access.does, list(access.resources(command, World().image))) == (does, resources)


def test_a_topic_that_a_command_names_by_its_id_is_a_resource_by_its_name() -> None:
    world = World()
    for line in ("register 1", "heartbeat 1", "create t on=1"):
        world.run(line)
    command = DeleteTopics(topics=(world.image.topics.ids["t"], "other"))
    found = DECISIONS[DeleteTopics].access.resources(command, world.image)
    assert list(found) == [topic_resource("t"), topic_resource("other")]


OPEN = ("DescribeHealth", "LogIn", "ShowConsole")
"""What needs no identity: nothing of the cluster is told."""


OF_ONESELF = tuple(name for name, access in OPERATIONS.items() if access.right is Right.IDENTITY)
"""What every principal may ask for: the decision looks at whose it is."""


@pytest.mark.parametrize("operation", OF_ONESELF)
def test_what_is_a_principals_own_needs_an_identity_alone(operation: str) -> None:
    image = World().image
    authorize(Caller(Principal("User:alice", frozenset())), operation, [CLUSTER], image)
    with pytest.raises(AuthenticationFailed, match=f"{operation} on cluster kafka-cluster needs an identity"):
        authorize(Caller(NOBODY), operation, [CLUSTER], image)


@pytest.mark.parametrize("operation", sorted(OPERATIONS.keys() - {*OPEN, *OF_ONESELF}))
def test_every_operation_reads_included_needs_a_right_of_some_role(operation: str) -> None:
    right, image = OPERATIONS[operation].right, World().image
    assert any(right in rights for rights in ROLES.values())
    authorize(anybody(), operation, [], image)
    with pytest.raises(AuthenticationFailed, match=f"{operation} on topic t needs an identity"):
        authorize(Caller(NOBODY), operation, [topic_resource("t")], image)
    without = Caller(Principal("User:alice", frozenset(Right) - {right}))
    with pytest.raises(NotAuthorized, match=f"no right to {operation} on topic t: it needs the right"):
        authorize(without, operation, [topic_resource("t")], image)


@pytest.mark.parametrize("operation", OPEN)
def test_whether_a_process_lives_is_no_secret_and_a_page_must_be_had_before_login(operation: str) -> None:
    authorize(Caller(NOBODY), operation, [CLUSTER], World().image)


@pytest.mark.parametrize(
    ("name", "node"),
    [
        ("Broker:11", Node(BROKER_KIND, 11)),
        ("Controller:1", Node(CONTROLLER, 1)),
        ("User:11", None),
        ("Broker:011", None),
        ("Broker:x", None),
        (ANYBODY.name, None),
    ],
)
def test_a_caller_is_the_node_that_its_identity_proves(name: str, node: Node | None) -> None:
    assert Caller(Principal(name, frozenset())).node == node


@pytest.mark.parametrize("operation", ["Fetch", "FetchSnapshot"])
def test_bytes_of_the_log_are_for_brokers_that_are_registered(operation: str) -> None:
    world = World()
    world.run("register 11")
    for number, is_registered in ((11, True), (12, False)):
        certified = Principal(f"Broker:{number}", ROLES["broker"], raw_if_registered=True)
        in_file = certified._replace(raw_if_registered=False)
        authorize(Caller(in_file), operation, [CLUSTER], world.image)
        if is_registered:
            authorize(Caller(certified), operation, [CLUSTER], world.image)
        else:
            with pytest.raises(NotAuthorized, match="once it is registered"):
                authorize(Caller(certified), operation, [CLUSTER], world.image)
    as_user = Caller(Principal("User:11", ROLES["broker"], raw_if_registered=True))
    with pytest.raises(NotAuthorized, match="once it is registered"):
        authorize(as_user, operation, [CLUSTER], world.image)


def test_a_broker_polls_as_itself_before_it_is_known_and_as_an_observer_after() -> None:
    """Goal: a controller that does not know of a broker yet does not end its polls."""
    image = World().image
    broker = Caller(Principal("Broker:11", ROLES["broker"], raw_if_registered=True))
    authorize_poll(broker, BrokerId(11), image)
    for caller, as_broker in ((broker, 12), (ALICE, 11), (ALICE, 12)):
        with pytest.raises(NotAuthorized):
            authorize_poll(caller, BrokerId(as_broker), image)
    authorize_poll(ALICE, OBSERVER, image)
    with pytest.raises(NotAuthorized, match="once it is registered"):
        authorize_poll(broker, OBSERVER, image)
    with pytest.raises(AuthenticationFailed):
        authorize_poll(Caller(NOBODY), OBSERVER, image)


def test_a_node_speaks_as_itself_alone() -> None:
    image = World().image
    authorize_command(BROKER_11, BLOCK, image)
    with pytest.raises(NotAuthorized, match="Broker:11 is not Broker:12"):
        authorize_command(BROKER_11, replace(BLOCK, broker_id=BrokerId(12)), image)
    with pytest.raises(NotAuthorized):
        authorize_command(ALICE, BLOCK, image)


def test_records_show_the_principal_and_its_address_or_the_node() -> None:
    assert ALICE.actor_of(DeleteTopic(name="t")) == "User:alice@192.0.2.1"
    assert BROKER_11.actor_of(BLOCK) == "Broker:11@192.0.2.2"
    assert Caller(ANYBODY, "192.0.2.3").actor_of(BLOCK) == "Broker:11", "anybody may say so"


async def test_a_controller_decides_nothing_for_a_caller_without_the_right() -> None:
    """Whatever a door forgets: the controller asks, for each command of a batch, a trial and a heartbeat as well."""
    lab = Lab()
    controller = lab.lead(1)
    reader = Caller(Principal("User:bob", ROLES["reader"]))
    before = controller.tip.end_offset
    with pytest.raises(NotAuthorized):
        await controller.submit(setting("1"), reader)
    with pytest.raises(NotAuthorized):
        await controller.try_out(setting("1"), reader)
    with pytest.raises(NotAuthorized):
        controller.heartbeat(poll(11, 5, applied=0), reader)
    assert controller.tip.end_offset == before
    writes: Iterable[tuple[Command, Caller]] = [(setting("1"), reader), (setting("2"), ALICE)]
    task = asyncio.create_task(controller.submit_all(writes))
    await spin()
    lab.quorum.commit()
    refused, written = await task
    assert isinstance(refused, NotAuthorized) and not isinstance(written, Exception)
    assert controller.committed.end_offset == before + 1
