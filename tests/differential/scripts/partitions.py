"""Pure: lines about partitions: ISRs, elections, reassignments, directories."""

from typing import Any

from tests.differential.scripts.picture import LEFT_OUT, REGISTERED, Partition, Picture
from tests.differential.scripts.topics import assignment


def alter_partition(picture: Picture) -> None:
    rng = picture.rng
    led = picture.any_partition(lambda each: each.leader >= 0 and (each.is_reassigned or picture.chance(0.4)))
    if led is None:
        return
    topic, number, partition = led
    if partition.leader < 0 and picture.chance(0.8):
        return
    able = [each for each in partition.replicas if picture.is_active(each)]
    kind = rng.random()
    if kind < 0.35:
        isr = able
    elif kind < 0.5 and partition.is_reassigned:  # end the reassignment
        isr = [each for each in partition.target if picture.is_active(each)]
        if partition.leader not in isr:
            isr.append(partition.leader)
    elif kind < 0.72:
        isr = [each for each in able if each == partition.leader or picture.chance(0.5)]
    else:
        _alter_badly(picture, topic, number, partition, able)
        return
    if partition.leader not in isr:
        isr.append(partition.leader)
    if picture.chance(0.5):
        isr = [each for each in partition.replicas if each in isr]
    else:
        rng.shuffle(isr)
    line: dict[str, Any] = {"partition_index": number, "new_isr": isr}
    if partition.is_recovering and picture.chance(0.3):
        line["leader_recovery_state"] = 1
    else:
        partition.is_recovering = False
    picture.emit("AlterPartition", topics=[{"name": topic, "partitions": [line]}])
    if all(map(picture.is_active, isr)):
        if picture.has_eligible:
            partition.eligible = [each for each in partition.eligible + partition.isr if each not in isr]
        partition.isr = list(isr)
        picture.settle(topic, partition)


def _alter_badly(picture: Picture, topic: str, number: int, partition: Partition, able: list[int]) -> None:
    rng = picture.rng
    named: dict[str, Any] = {"name": topic}
    line: dict[str, Any] = {"partition_index": number}
    fields: dict[str, Any] = {}
    isr: list[Any] = list(able)
    bad = rng.choice(
        [
            *("leader_epoch+", "leader_epoch-", "partition_epoch+", "partition_epoch-", "broker", "stranger"),
            *("twice", "no leader", "negative", "ineligible", "member", "stale", "topic", "partition"),
            *("recovering", "alone", "any epoch"),
        ]
    )
    match bad:
        case "broker":
            fields["broker_id"] = picture.any_broker().broker_id
        case "stranger":
            isr.append(next((each for each in picture.brokers if each not in partition.replicas), 55))
        case "twice":
            isr += isr[:1]
        case "no leader":
            isr = [each for each in isr if each != partition.leader]
        case "negative":
            isr.append(-1)
        case "ineligible":
            isr = list(partition.replicas)
        case "member":
            isr = [{"broker_id": each, "broker_epoch": rng.choice(["-1", "+1", "previous"])} for each in isr]
        case "any epoch":
            isr = [{"broker_id": each, "broker_epoch": -1} for each in isr]
        case "stale":
            fields["broker_epoch"] = rng.choice(["-1", "+5", "previous"])
        case "topic":
            named = {"topic_id": picture.pick(picture.deleted, "nothing#1")}
            fields["broker_id"] = partition.leader
        case "partition":
            line["partition_index"] = 40
            fields["broker_id"] = partition.leader
        case "recovering" | "alone":
            line["leader_recovery_state"] = 1
            if bad == "alone":
                isr = [partition.leader]
        case _:
            line[bad[:-1]] = bad[-1] + "1"
    line["new_isr"] = isr
    picture.emit("AlterPartition", topics=[{**named, "partitions": [line]}], **fields)


def elect(picture: Picture) -> None:
    kind = picture.rng.choice([0, 0, 1])
    if picture.chance(0.3):
        picture.emit("ElectLeaders", election_type=kind, topic_partitions=None)
        hit = picture.partitions()
    else:
        one = picture.any_partition(lambda each: each.leader < 0 or each.leader != each.replicas[0])
        if one is None:
            return
        others = [{"topic": "nothing", "partitions": [0]}] if picture.chance(0.1) else []
        number = picture.mostly(one[1], 0.95, 50)
        picture.emit(
            "ElectLeaders",
            election_type=picture.mostly(kind, 0.98, 7),
            topic_partitions=[{"topic": one[0], "partitions": [number]}, *others],
        )
        hit = [one]
    for topic, _, partition in hit:
        preferred = partition.replicas[0]
        if kind == 0 and preferred in partition.isr and picture.is_active(preferred):
            partition.leader = preferred
        elif kind == 1 and partition.leader < 0:
            picture.settle(topic, partition, unclean=True)


def reassign(picture: Picture) -> None:
    rng = picture.rng
    wants_running = picture.chance(0.5)
    one = picture.any_partition(lambda each: each.is_reassigned or not wants_running)
    if one is None:
        return
    topic, number, partition = one
    if rng.random() < (0.35 if partition.is_reassigned else 0.08):
        _emit_reassignment(picture, topic, number, None)
        if partition.is_reassigned:
            partition.isr = [each for each in partition.isr if each not in partition.adding] or partition.isr
            partition.replicas = [each for each in partition.replicas if each not in partition.adding]
            partition.adding, partition.removing = [], []
            picture.settle(topic, partition)
        return
    target = assignment(picture, max(1, len(partition.target) + rng.choice([0, 0, 0, 0, 1, -1])))
    if picture.chance(0.15):
        target = rng.sample(partition.replicas, len(partition.replicas))
    keeps_count = picture.chance(0.1)
    if picture.chance(0.08):
        target = rng.choice([[], [66], target + target[:1]])
        if picture.chance(0.3):
            topic = "nothing"
        _emit_reassignment(picture, topic, rng.choice([number, 60]), target)
        return
    _emit_reassignment(picture, topic, number, target, keeps_count=keeps_count)
    is_taken = set(target) <= set(picture.ids(*REGISTERED))
    if is_taken and not (keeps_count and len(target) != len(partition.target)):
        partition.removing = sorted(set(partition.replicas) - set(target))
        partition.adding = sorted(set(target) - set(partition.replicas))
        partition.replicas = target + partition.removing
        picture.settle(topic, partition)


def _emit_reassignment(
    picture: Picture, topic: str, number: int, target: list[int] | None, *, keeps_count: bool = False
) -> None:
    picture.emit(
        "AlterPartitionReassignments",
        topics=[{"name": topic, "partitions": [{"partition_index": number, "replicas": target}]}],
        allow_replication_factor_change=False if keeps_count else LEFT_OUT,
    )


def list_reassignments(picture: Picture) -> None:
    if picture.chance(0.6) or not picture.topics:
        picture.emit("ListPartitionReassignments", topics=None)
        return
    topic = picture.rng.choice([*picture.topics, "nothing"])
    picture.emit("ListPartitionReassignments", topics=[{"name": topic, "partition_indexes": [0, 1]}])


def assign_directories(picture: Picture) -> None:
    broker = picture.any_broker(picture.ids(*REGISTERED))
    one = picture.any_partition(lambda each: broker.broker_id in each.replicas)
    if one is None:
        return
    log_dir = picture.rng.choice([*broker.log_dirs * 4, "LOST", "elsewhere"])
    topic: dict[str, Any] = {"name": one[0], "partitions": [picture.mostly(one[1], 0.95, 30)]}
    if picture.chance(0.05):
        topic = {"topic_id": "nothing#1", "partitions": [0]}
    picture.emit(
        "AssignReplicasToDirs",
        broker_id=broker.broker_id,
        broker_epoch="+1" if picture.chance(0.04) else LEFT_OUT,
        directories=[{"id": log_dir, "topics": [topic]}],
    )
