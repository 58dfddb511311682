"""Operations of scripts through the bytes of Kafka's protocol, without sockets: a line becomes a request, which the door's
reader and handler take; the command is decided as scripts decide it, and the answer is read back from its bytes.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from itertools import groupby
from types import SimpleNamespace
from typing import Any, Final

from metadata_log.errors import MetadataError
from metadata_log.ids import BrokerId
from metadata_log.kafka.messages import REQUESTS, answer_head, read_whole, request_header
from metadata_log.kafka.reading import Values
from metadata_log.node.identity.refusals import Refusals
from metadata_log.wire.commands import (
    AllocateProducerIds,
    AlterPartition,
    AssignReplicasToDirs,
    BrokerHeartbeat,
    Command,
    RegisterBroker,
)
from metadata_log.wire.fetch import BrokerState
from quorum.controller.callers import Caller
from quorum.controller.written import Written
from quorum.decide.brokers import BrokerRegistered, BrokerUnregistered, UnregisterBroker
from quorum.decide.decision import Outcome
from quorum.decide.described_configs import describe_topic_configs
from quorum.decide.directories import ReplicaAssigned, ReplicasAssigned
from quorum.decide.heartbeat import HeartbeatAnswered
from quorum.decide.partitions import PartitionAltered, PartitionsAltered
from quorum.decide.producer_ids import ProducerIdsAllocated
from quorum.decide.tokens import (
    CreateDelegationToken,
    CreateDelegationTokenFor,
    ExpireDelegationToken,
    RenewDelegationToken,
    TokenCreated,
    TokenExpiry,
)
from quorum.kafka.apis import APIS
from quorum.kafka.configs import SOURCES
from quorum.kafka.door import Asked, AtOnce, KafkaDoor, Parks, Waits
from quorum.node.config import AclSettings, TopicSettings
from quorum.whatif.acls import acls_of, filters_of
from quorum.whatif.operation import CODES, Answer, Line, Run, or_default
from tests.support.callers import anybody
from tests.support.kafka_client import answer_values, request_bytes

Operation = Callable[[Run, Line], Answer]
NO_UUID: Final = bytes(16)
_BY_CODE: Final = {code: name for name, code in reversed(list(CODES.items()))}


class _Reads:
    async def run(self, work: Callable[[], Any]) -> Any:
        return work()


class _Controller:
    """What handlers use of a controller, on the cluster of a script; `raised` is the last refusal of a whole command."""

    is_active = True

    def __init__(self, run: "RunThroughBytes") -> None:
        self._run = run
        self.tokens = run.cluster.tokens
        self.raised: MetadataError | None = None

    @property
    def committed(self) -> Any:
        return self._run.image

    async def submit(self, command: Command, _: Caller) -> Written:
        try:
            outcome = self._run.decide(command, requester=self._run.requester)
        except MetadataError as error:
            self.raised = error
            raise
        return Written(outcome=outcome, base_offset=0, end_offset=0)

    async def read(self, view: Callable[[Any], Any]) -> Any:
        return view(self._run.image)


class _Heartbeats:
    """What handlers use for a heartbeat."""

    def __init__(self, controller: _Controller) -> None:
        self._controller = controller

    async def take(self, command: Command, caller: Caller, **_: Any) -> Any:
        return (await self._controller.submit(command, caller)).outcome


def _never(_: Any) -> None:
    raise AssertionError("a script parks nothing")


def _at_once(work: Any) -> Any:
    """Return what a coroutine returns that waits for nothing."""
    try:
        work.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("a handler waits for what a script does not have")


def _topic_settings(run: Run) -> TopicSettings:
    options = run.cluster.options
    return TopicSettings(
        num_partitions=options.num_partitions,
        default_replication_factor=options.default_replication_factor,
        min_insync_replicas=options.min_insync_replicas,
        remote_log_storage_system_enable=options.remote_log_storage_system_enable,
    )


def _door(run: "RunThroughBytes") -> KafkaDoor:
    """Return a door with the parts that handlers use in a script; what doors make of their parts is made as in a node."""
    controller: Any = _Controller(run)
    settings = SimpleNamespace(
        node_id=run.cluster.options.controller_id,
        topics=_topic_settings(run),
        acls=AclSettings(enforced=True),
        kafka_security="sasl_tls",
    )
    door = object.__new__(KafkaDoor)
    vars(door).update(
        controller=controller,
        settings=settings,
        reads=_Reads(),
        now_ms=lambda: run.cluster.now_ms,
        fetches=SimpleNamespace(heartbeats=_Heartbeats(controller)),
        access=SimpleNamespace(refusals=Refusals()),
    )
    return door


def exchange(run: Run, key: int, version: int, values: Values) -> Values:
    """Return the values of the answer to a request; raises the refusal of its command, which the answer must have told."""
    data = request_bytes(key, version, values)
    header = request_header(data)
    assert isinstance(run, RunThroughBytes)
    door = run.door
    caller = anybody()
    if run.requester:
        caller = caller._replace(principal=caller.principal._replace(name=run.requester))
    asked = Asked(header.version, read_whole(REQUESTS[key], header.version, data, header.at), caller)
    api = APIS[key]
    refusal: MetadataError | None = None
    try:
        match api.handler:
            case AtOnce(answer=answer_at_once):
                answer = answer_at_once(door, asked)
            case Waits(answer=handle):
                answer = _at_once(handle(door, asked))
            case Parks(take=take, make=make):
                waiting: Any = take(door, asked._replace(made=make(door, asked)), _never)
                answer = _at_once(waiting)
    except MetadataError as error:
        refusal = error
        answer = api.refusal(door, asked, error)
    whole = (
        answer_head(key, version, header.correlation_id)
        + api.tail(version, answer)[len(answer_head(key, version, 0)) - 4 :]
    )
    correlation_id, answered = answer_values(key, version, whole)
    assert correlation_id == header.correlation_id
    if refusal is not None:
        assert refusal.code in _numbers(answered), (refusal, answered)
        raise refusal
    return answered


def _numbers(values: Any) -> set[int]:
    if isinstance(values, int):
        return {values}
    return set().union(*map(_numbers, values)) if isinstance(values, tuple) else set()


def _result(code: int, message: str | None, **fields: Any) -> Answer:
    if code == 0:
        assert message is None
        return {"error": None, **fields}
    return {"error": _BY_CODE[code], "code": code, "message": message, **fields}


# --- topics


def create_topics(run: Run, line: Line) -> Answer:
    topics = [
        (
            topic["name"],
            or_default(topic, "num_partitions", -1),
            or_default(topic, "replication_factor", -1),
            _assignments(or_default(topic, "assignments", [])),
            tuple(or_default(topic, "configs", {}).items()),
        )
        for topic in line["topics"]
    ]
    is_trial = bool(line.get("validate_only"))
    _, rows = exchange(run, 19, 7, (topics, 1_000, is_trial))
    results = []
    for name, topic_id, code, message, _, partitions, factor, configs in rows:
        shown = {}
        if code == 0:
            word = None if topic_id == NO_UUID else run.names.word(topic_id)
            shown = {"topic_id": word, "num_partitions": partitions, "replication_factor": factor}
            assert configs if is_trial else configs == _settings(run, name)
        results.append(_result(code, message, name=name, **shown))
    return {"results": results}


def _settings(run: Run, topic: str) -> Values:
    """Return all settings of a topic that is there, as the answer to its creation must have them."""
    described = describe_topic_configs(
        run.image.configs,
        topic,
        node_id=run.cluster.options.controller_id,
        static=_topic_settings(run).static_configs,
    )
    return tuple(
        (each.name, each.value, each.read_only, SOURCES[each.source], each.is_sensitive) for each in described
    )


def _assignments(rows: Sequence[Any]) -> list[Values]:
    """Return the numbers and replicas of partitions; a row without a number follows the one before it."""
    found, number = [], 0
    for row in rows:
        if isinstance(row, Mapping):
            number = row["partition_index"]
            found.append((number, tuple(row["broker_ids"])))
        else:
            found.append((number, tuple(row)))
        number += 1
    return found


def delete_topics(run: Run, line: Line) -> Answer:
    ids = line.get("topic_ids")
    if ids is not None:
        given = [(None, run.names.uuid(each)) for each in ids]
        shown = {run.names.uuid(each): each for each in ids}
        _, rows = exchange(run, 20, 6, (given, (), 1_000))
        return {
            "results": [_result(code, text, topic_id=shown[topic_id]) for _, topic_id, code, text in rows]
        }
    names = tuple(line.get("topic_names") or ())
    _, rows = exchange(run, 20, 5, ((), names, 1_000))
    return {"results": [_result(code, message, name=name) for name, _, code, message in rows]}


def create_partitions(run: Run, line: Line) -> Answer:
    topics = [
        (
            topic["name"],
            topic["count"],
            None
            if topic.get("assignments") is None
            else [
                (tuple(row["broker_ids"] if isinstance(row, Mapping) else row),)
                for row in topic["assignments"]
            ],
        )
        for topic in line["topics"]
    ]
    _, rows = exchange(run, 37, 3, (topics, 1_000, bool(line.get("validate_only"))))
    return {"results": [_result(code, message, name=name) for name, code, message in rows]}


# --- settings and features

_TYPES: Final = {"TOPIC": 2, "BROKER": 4}
_CONFIG_OPERATIONS: Final = {"SET": 0, "DELETE": 1, "APPEND": 2, "SUBTRACT": 3, None: 0}


def alter_incrementally(run: Run, line: Line) -> Answer:
    def change(config: Line) -> Values:
        operation = config.get("config_operation")
        return config["name"], _CONFIG_OPERATIONS.get(operation, operation), config.get("value")

    return _altered(run, 44, 1, line, change)


def alter_wholly(run: Run, line: Line) -> Answer:
    return _altered(run, 33, 2, line, lambda config: (config["name"], config.get("value")))


def _altered(run: Run, key: int, version: int, line: Line, change: Callable[[Line], Values]) -> Answer:
    resources = [
        (
            _TYPES.get(resource["resource_type"], resource["resource_type"]),
            or_default(resource, "resource_name", ""),
            [change(config) for config in resource["configs"]],
        )
        for resource in line["resources"]
    ]
    _, rows = exchange(run, key, version, (resources, bool(line.get("validate_only"))))
    return {
        "results": [
            _result(code, message, resource_type=resource_type, resource_name=name)
            for code, message, resource_type, name in rows
        ]
    }


def update_features(run: Run, line: Line) -> Answer:
    updates = [
        (each["feature"], each["max_version_level"], False, or_default(each, "upgrade_type", 1))
        for each in line["feature_updates"]
    ]
    exchange(run, 57, 2, (1_000, updates, bool(line.get("validate_only"))))
    return {}


def create_acls(run: Run, line: Line) -> Answer:
    _, rows = exchange(run, 30, 3, (list(acls_of(line)),))
    return {"results": [_result(code, message) for code, message in rows]}


def delete_acls(run: Run, line: Line) -> Answer:
    _, rows = exchange(run, 31, 3, (list(filters_of(line)),))
    return {"results": [_result(code, message) | {"deleted": len(acls)} for code, message, acls in rows]}


def alter_quotas(run: Run, line: Line) -> Answer:
    entries = [
        (
            [(part["entity_type"], part.get("entity_name")) for part in entry["entity"]],
            [(op["key"], float(op.get("value") or 0), bool(op.get("remove"))) for op in entry["ops"]],
        )
        for entry in line["entries"]
    ]
    _, rows = exchange(run, 49, 1, (entries, bool(line.get("validate_only"))))
    return {"results": [_result(code, message) for code, message, _ in rows]}


def alter_credentials(run: Run, line: Line) -> Answer:
    deletions = [(each["name"], each["mechanism"]) for each in line.get("deletions") or ()]
    upsertions = [
        (
            each["name"],
            each["mechanism"],
            or_default(each, "iterations", 4_096),
            or_default(each, "salt", "salt").encode(),
            or_default(each, "salted_password", "password").encode(),
        )
        for each in line.get("upsertions") or ()
    ]
    _, rows = exchange(run, 51, 0, (deletions, upsertions))
    return {"results": [_result(code, message, user=user) for user, code, message in rows]}


# --- partitions


def elect_leaders(run: Run, line: Line) -> Answer:
    wanted = line.get("topic_partitions")
    topics = None if wanted is None else [(each["topic"], tuple(each["partitions"])) for each in wanted]
    _, error, rows = exchange(run, 43, 2, (or_default(line, "election_type", 0), topics, 1_000))
    assert error == 0
    return {
        "results": [
            _result(code, message, topic=topic, partition_id=partition_id)
            for topic, partitions in rows
            for partition_id, code, message in partitions
        ]
    }


def reassign(run: Run, line: Line) -> Answer:
    topics = [
        (
            topic["name"],
            [
                (item["partition_index"], None if item.get("replicas") is None else tuple(item["replicas"]))
                for item in topic["partitions"]
            ],
        )
        for topic in line["topics"]
    ]
    may_change = or_default(line, "allow_replication_factor_change", True)
    _, _, error, _, rows = exchange(run, 45, 1, (1_000, may_change, topics))
    assert error == 0
    return {
        "results": [
            _result(code, message, topic=topic, partition_index=partition_id)
            for topic, partitions in rows
            for partition_id, code, message in partitions
        ]
    }


def list_reassignments(run: Run, line: Line) -> Answer:
    wanted = line.get("topics")
    topics = None if wanted is None else [(each["name"], tuple(each["partition_indexes"])) for each in wanted]
    _, error, _, rows = exchange(run, 46, 0, (1_000, topics))
    assert error == 0
    return {
        "response": {
            "reassignments": [
                {
                    "topic": topic,
                    "partition_index": partition_id,
                    "replicas": [*replicas],
                    "adding_replicas": [*adding],
                    "removing_replicas": [*removing],
                }
                for topic, partitions in rows
                for partition_id, replicas, adding, removing in partitions
            ]
        }
    }


THROUGH_BYTES: Final[Mapping[str, Operation]] = {
    "CreateTopics": create_topics,
    "DeleteTopics": delete_topics,
    "CreatePartitions": create_partitions,
    "IncrementalAlterConfigs": alter_incrementally,
    "LegacyAlterConfigs": alter_wholly,
    "UpdateFeatures": update_features,
    "AlterClientQuotas": alter_quotas,
    "AlterUserScramCredentials": alter_credentials,
    "CreateAcls": create_acls,
    "DeleteAcls": delete_acls,
    "ElectLeaders": elect_leaders,
    "AlterPartitionReassignments": reassign,
    "ListPartitionReassignments": list_reassignments,
}


# --- what brokers send, and what clients ask about delegation tokens


class RunThroughBytes(Run):
    """A script whose commands of brokers, and about tokens, are written as Kafka's requests; their answers are read back."""

    requester = ""
    """The principal that asks for what is written; "" where nothing rests on who it is."""
    _on_the_way: Command | None = None
    """What was written; the handler must make the same command of it."""

    @cached_property
    def door(self) -> KafkaDoor:
        """One for the whole script: what a door keeps from one request to the next must not be told when it has changed."""
        return _door(self)

    def decide(self, command: Command, *, requester: str = "") -> Outcome:
        through = _REQUESTS.get(type(command))
        if through is None or getattr(command, "is_late", False):
            return super().decide(command, requester=requester)
        if self._on_the_way is not None:
            assert command == self._on_the_way
            return super().decide(command, requester=requester)
        key, version, values_of, outcome_of = through
        self._on_the_way, self.requester = command, requester
        try:
            return outcome_of(exchange(self, key, version, values_of(command)))
        finally:
            self._on_the_way, self.requester = None, ""


def _registration(command: RegisterBroker) -> Values:
    return (
        command.broker_id,
        command.cluster_id,
        command.incarnation_id,
        command.endpoints,
        command.features,
        command.rack,
        False,
        command.log_dirs,
        command.previous_broker_epoch,
    )


def _beat(command: BrokerHeartbeat) -> Values:
    return (
        command.broker_id,
        command.broker_epoch,
        command.applied_offset - 1,
        command.want_fence,
        command.want_shut_down,
        command.offline_log_dirs,
        command.cordoned_log_dirs,
    )


def _beaten(values: Values) -> HeartbeatAnswered:
    _, _, is_caught_up, is_fenced, should_shut_down = values
    state = BrokerState.FENCED if is_fenced else BrokerState.ONLINE
    return HeartbeatAnswered(state, should_shut_down, is_caught_up)


def _reported(command: AlterPartition) -> Values:
    topics = [
        (
            topic_id,
            [
                (
                    each.partition_id,
                    each.leader_epoch,
                    (),
                    [(member.broker_id, member.broker_epoch) for member in each.isr],
                    each.leader_recovery_state,
                    each.partition_epoch,
                )
                for each in some
            ],
        )
        for topic_id, some in groupby(command.partitions, key=lambda each: each.topic_id)
    ]
    return (command.broker_id, command.broker_epoch, topics)


def _altered_partitions(values: Values) -> PartitionsAltered:
    return PartitionsAltered(
        tuple(
            PartitionAltered(topic_id, partition_id, *((None, *rest) if error == 0 else (_BY_CODE[error],)))
            for topic_id, partitions in values[2]
            for partition_id, error, *rest in partitions
        )
    )


def _placed(command: AssignReplicasToDirs) -> Values:
    directories = [
        (
            directory,
            [
                (topic_id, [(each.partition_id,) for each in same])
                for topic_id, same in groupby(some, key=lambda each: each.topic_id)
            ],
        )
        for directory, some in groupby(command.replicas, key=lambda each: each.directory)
    ]
    return (command.broker_id, command.broker_epoch, directories)


def _assigned(values: Values) -> ReplicasAssigned:
    return ReplicasAssigned(
        tuple(
            ReplicaAssigned(directory, topic_id, partition_id, None if error == 0 else _BY_CODE[error])
            for directory, topics in values[2]
            for topic_id, partitions in topics
            for partition_id, error in partitions
        )
    )


def _issued(command: CreateDelegationToken | CreateDelegationTokenFor) -> Values:
    kind, name = command.owner.split(":") if isinstance(command, CreateDelegationTokenFor) else (None, None)
    renewers = [tuple(renewer.split(":")) for renewer in command.renewers]
    return (kind, name, renewers, command.max_lifetime_ms)


def _token_created(values: Values) -> TokenCreated:
    _, kind, name, requester_kind, requester_name, *times, token_id, _, _ = values
    return TokenCreated(token_id, f"{kind}:{name}", f"{requester_kind}:{requester_name}", *times)


_REQUESTS: Final[
    Mapping[type[Command], tuple[int, int, Callable[[Any], Values], Callable[[Values], Outcome]]]
] = {
    RegisterBroker: (62, 4, _registration, lambda values: BrokerRegistered(values[2])),
    BrokerHeartbeat: (63, 2, _beat, _beaten),
    UnregisterBroker: (
        64,
        0,
        lambda command: (command.broker_id,),
        lambda _: BrokerUnregistered(BrokerId(0)),
    ),
    AllocateProducerIds: (
        67,
        0,
        lambda command: (command.broker_id, command.broker_epoch),
        lambda values: ProducerIdsAllocated(*values[2:]),
    ),
    AlterPartition: (56, 3, _reported, _altered_partitions),
    AssignReplicasToDirs: (73, 0, _placed, _assigned),
    CreateDelegationToken: (38, 3, _issued, _token_created),
    CreateDelegationTokenFor: (38, 3, _issued, _token_created),
    RenewDelegationToken: (
        39,
        2,
        lambda command: (command.hmac, command.renew_period_ms),
        lambda values: TokenExpiry(values[1]),
    ),
    ExpireDelegationToken: (
        40,
        2,
        lambda command: (command.hmac, command.expiry_time_period_ms),
        lambda values: TokenExpiry(values[1]),
    ),
}
"""By command: the key and the version of its request, how that is written, and how the answer is read."""
