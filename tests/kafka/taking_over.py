"""Edge: a running cluster of Kafka's own is taken over by controllers of ours, under load, and given back to Kafka's."""

import asyncio
import dataclasses
import json
import logging
import random
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from confluent_kafka import TopicCollection
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclBindingFilter, AclOperation, AclPermissionType
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType
from confluent_kafka.admin._scram import (
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialAlteration,
    UserScramCredentialUpsertion,
)
from confluent_kafka.cimpl import NewTopic

from metadata_log.errors import Unavailable
from metadata_log.node.addresses import HostPort, address_text, read_address
from metadata_log.records.configs import BROKER, CLUSTER_DEFAULT
from ops.kafka.__main__ import RELEASE_VARIABLE
from ops.kafka.clients import Admin, Sent, producing, read_to_end, settings
from ops.kafka.properties import CLIENT_LISTENER, CONTROLLER_LISTENER, LOG_DIRS
from ops.kafka.real_quorum import RealQuorum
from ops.local.cluster import LocalCluster
from ops.local.layout import HOST, free_ports, ports_of
from ops.toolchain.jars import KAFKA_VERSION
from tests.support.kafka_client import KafkaClient
from tests.support.processes import poll_until
from tests.support.verbs import run_verb

DEADLINE_S: Final = 180.0
PER_SECOND: Final = 50.0
AT_ONCE: Final = 50
"""Topics of one request."""
PASSWORD: Final = "rather secret"
SASL: Final = "SASL"
OF_TOPIC: Final = 1
OF_ALL_BROKERS: Final = 3
"""Kafka's numbers of where a setting comes from."""
SETTINGS: Final = {
    # On a busy machine a broker may take longer than a minute until it is unfenced.
    "initial.broker.registration.timeout.ms": "240000",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}


@dataclasses.dataclass(slots=True)
class TakenOver:
    """What became of a cluster that was taken over and given back."""

    topics: int = 0
    acls: int = 0
    users: int = 0
    quotas: int = 0
    acknowledged: int = 0
    failed: int = 0
    lost: int = 0
    doubled: int = 0
    writers_stopped_ms: dict[str, int] = dataclasses.field(default_factory=dict)
    """The longest time between two acknowledgements of any producer, each way."""
    no_controller_s: dict[str, float] = dataclasses.field(default_factory=dict)
    """From the stop of the former controllers until a topic was created through the new ones."""
    moved_s: dict[str, float] = dataclasses.field(default_factory=dict)
    """What the verb alone took."""
    differences: list[str] = dataclasses.field(default_factory=list)
    logins: int = 0
    """How often a user's password was taken: before, between and after."""
    seconds: float = 0.0

    @property
    def holds(self) -> bool:
        return (
            self.acknowledged > 0
            and not (self.failed or self.lost or self.doubled or self.differences)
            and self.logins == 1 + len(self.moved_s) > 2
        )

    def text(self) -> str:
        return "\n".join(f"{name}: {value}" for name, value in dataclasses.asdict(self).items())


class Takeover:
    """Both clusters of a run: Kafka's with its brokers, and our controllers, which have the same cluster id."""

    login: Mapping[str, str] = {}
    """How clients log in at brokers."""

    def __init__(
        self,
        directory: Path,
        *,
        controllers: int,
        brokers: int,
        kafka_controllers: int,
        users: int,
        follows: bool,
        release: str = KAFKA_VERSION,
    ) -> None:
        """`follows`: the voters of Kafka's quorum can change, and its brokers find ours by bootstrap servers.

        Else every broker names the voters, and ours listen where Kafka's did, under their ids.
        """
        self.ours = LocalCluster(directory / "ours", controllers=controllers, brokers=0, kafka=True)
        self.ours.prepare()
        addresses: dict[int, HostPort] = {
            member.id: read_address(member.kafka or "") for member in self.ours.controllers
        }
        self.kafka = RealQuorum(
            directory / "kafka",
            brokers=brokers,
            cluster_id=self.ours.cluster_id,
            voters=(
                drawn(kafka_controllers, ports_of(self.ours.controllers))
                if follows
                else dict([*addresses.items()][:kafka_controllers])
            ),
            further=[*addresses.values()] if follows else None,
            settings=SETTINGS,
            environment={RELEASE_VARIABLE: release},
            taken=ports_of(self.ours.controllers),
        )
        self.logins = self._let_users_log_in()
        self.bootstrap = self.kafka.bootstrap
        self.users = users
        self.sent: list[tuple[str, Sent]] = []

    @cached_property
    def _client(self) -> AdminClient:
        return AdminClient(settings(self.bootstrap), logger=logging.getLogger("tests.kafka.taking_over"))

    def _let_users_log_in(self) -> list[str]:
        """Give each broker a listener for users of SCRAM; return where they listen."""
        at_kafka = (*self.kafka.voters.values(), *map(read_address, self.kafka.brokers.values()))
        taken = ports_of(self.ours.controllers) | {port for _, port in at_kafka}
        ports = free_ports(taken, random.SystemRandom())
        found = []
        for node_id, address in self.kafka.brokers.items():
            at = address_text((HOST, next(ports)))
            found.append(at)
            self.kafka.change(
                node_id,
                {
                    "listeners": f"{CLIENT_LISTENER}://{address},{SASL}://{at}",
                    "listener.security.protocol.map": (
                        f"{CONTROLLER_LISTENER}:PLAINTEXT,{CLIENT_LISTENER}:PLAINTEXT,{SASL}:SASL_PLAINTEXT"
                    ),
                    "sasl.enabled.mechanisms": "SCRAM-SHA-256",
                    f"listener.name.{SASL.lower()}.scram-sha-256.sasl.jaas.config": (
                        "org.apache.kafka.common.security.scram.ScramLoginModule required;"
                    ),
                },
            )
        return found

    # --- what is in it

    def fill(self, *, topics: int, quotas: int) -> list[str]:
        """Create topics with ACLs and settings, users and quotas; return the topics."""
        names = [f"topic-{number:04}" for number in range(topics)]
        replicas = len(self.kafka.brokers)
        for at in range(0, topics, AT_ONCE):
            made = [
                NewTopic(name, 2, replicas, config={"retention.ms": str(3_600_000 + at)})
                for name in names[at : at + AT_ONCE]
            ]
            _all(self._client.create_topics(made, operation_timeout=60, request_timeout=60))
        acls = [
            AclBinding(
                ResourceType.TOPIC,
                name,
                ResourcePatternType.LITERAL,
                f"User:user-{number % self.users}",
                "*",
                AclOperation.WRITE,
                AclPermissionType.ALLOW,
            )
            for number, name in enumerate(names)
        ]
        for at in range(0, len(acls), 500):
            _all(self._client.create_acls(acls[at : at + 500], request_timeout=60))
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
        told: list[UserScramCredentialAlteration] = [
            UserScramCredentialUpsertion(f"user-{number}", info, PASSWORD.encode())
            for number in range(self.users)
        ]
        _all(self._client.alter_user_scram_credentials(told, request_timeout=60))
        asyncio.run(self._set_the_rest(quotas))
        return names

    async def _set_the_rest(self, quotas: int) -> None:
        """Set quotas, and a setting of all brokers: librdkafka knows no request for either."""
        client = await KafkaClient.connect(read_address(self.bootstrap[0]))
        entries = tuple(
            (
                (("user", f"user-{number}"), ("client-id", "app")),
                (("producer_byte_rate", 1_000_000.0 + number, False),),
            )
            for number in range(quotas)
        )
        answered = await client.ask(49, 1, entries, False)
        setting = (BROKER, CLUSTER_DEFAULT, (("message.max.bytes", 0, "1000013"),))
        altered = await client.ask(44, 1, (setting,), False)
        client.close()
        if failed := [row for row in (*answered[1], *altered[1]) if row[0] != 0]:
            raise Unavailable(f"quotas or settings were refused: {failed[:3]}")

    def described(self, names: Sequence[str]) -> dict[str, Any]:
        """Return what the brokers say of the cluster, without what may change while clients write."""
        topics = {
            name: (
                str(found.topic_id),
                [[node.id for node in each.replicas] for each in found.partitions],
            )
            for name, future in self._client.describe_topics(
                TopicCollection([*names]), request_timeout=60
            ).items()
            if (found := future.result()) is not None
        }
        some = [
            ConfigResource(ConfigResource.Type.TOPIC, name) for name in names[:: max(1, len(names) // 100)]
        ]
        brokers = [ConfigResource(ConfigResource.Type.BROKER, str(number)) for number in self.kafka.brokers]
        configs = {
            resource.name: {
                name: entry.value for name, entry in future.result().items() if entry.source == own
            }
            for own, each in ((OF_TOPIC, some), *((OF_ALL_BROKERS, [broker]) for broker in brokers))
            for resource, future in self._client.describe_configs(each, request_timeout=60).items()
        }
        any_text: Any = None  # what the library's own types leave out
        anything = AclBindingFilter(
            ResourceType.ANY,
            any_text,
            ResourcePatternType.ANY,
            any_text,
            any_text,
            AclOperation.ANY,
            AclPermissionType.ANY,
        )
        acls = sorted(map(str, self._client.describe_acls(anything, request_timeout=60).result()))
        told: Any = self._client.describe_user_scram_credentials(request_timeout=60)
        users = {
            name: [(str(each.mechanism), each.iterations) for each in found.scram_credential_infos]
            for name, found in told.result().items()
        }
        return {"topics": topics, "configs": configs, "acls": acls, "users": users}

    def log_in(self, topic: str) -> bool:
        """Answer whether a user's password is taken, and its ACL, for a record."""
        user = f"user-{int(topic[-4:]) % self.users}"
        with producing(
            self.logins,
            topic,
            per_second=20,
            security_protocol="sasl_plaintext",
            sasl_mechanism="SCRAM-SHA-256",
            sasl_username=user,
            sasl_password=PASSWORD,
        ) as sent:
            poll_until(
                lambda: len(sent.acknowledged) > 3, deadline_s=DEADLINE_S, what=f"{user} writes {topic}"
            )
        return not sent.failed

    # --- load

    @contextmanager
    def load(self, names: Sequence[str]) -> Iterator[None]:
        with ExitStack() as stack:
            for name in names:
                self.sent.append(
                    (name, stack.enter_context(producing(self.bootstrap, name, per_second=PER_SECOND)))
                )
            yield

    def progress(self) -> None:
        """Wait until every producer has more records acknowledged."""
        before = [len(sent.acknowledged) for _, sent in self.sent]

        def has_come() -> bool:
            for topic, sent in self.sent:
                if sent.failed:
                    raise Unavailable(
                        f"{topic}: {len(sent.failed)} records failed: {[*sent.failed.items()][:3]}"
                    )
            return all(
                len(sent.acknowledged) > had + 50 for (_, sent), had in zip(self.sent, before, strict=True)
            )

        poll_until(has_come, deadline_s=DEADLINE_S, what="records are acknowledged")

    def gap_ms(self) -> int:
        """Return the longest gap since the last call."""
        self.progress()
        longest = max(sent.longest_gap_s for _, sent in self.sent)
        for _, sent in self.sent:
            sent.longest_gap_s = 0.0
        return round(longest * 1000)

    # --- both ways

    def start_kafka(self) -> None:
        for nodes in (self.kafka.voters, self.kafka.brokers):
            for node_id in nodes:
                self.kafka.start(node_id)
            for node_id in nodes:
                self.kafka.wait_until_started(node_id)

    def take_over(self, *options: str) -> float:
        """Kill Kafka's controllers, import what they left, and start ours; return what the import took."""
        for node_id in self.kafka.voters:
            self.kafka.kill(node_id)
        sources = [str(self.kafka.data(node_id) / f"{LOG_DIRS}-1") for node_id in self.kafka.voters]
        configs = [str(self.ours.directory / member.config) for member in self.ours.controllers]
        for member in self.ours.controllers:
            if (self.ours.data(member.id) / "process.json").exists():  # it is from the takeover before
                self.ours.data(member.id).rename(self.ours.data(member.id).with_name(f"{member.data}-before"))
        took = _ran("import-kafka", sources, configs, *options)
        for member in self.ours.controllers:
            asyncio.run(self.ours.start_one(member.id))
        return took

    def give_back(self) -> float:
        """Kill our controllers, export what they left, and start Kafka's; return what the export took."""
        for member in self.ours.controllers:
            self.ours.signal(member.id, signal.SIGKILL)
        for member in self.ours.controllers:
            poll_until(
                lambda member=member: self.ours.pid(member.id) is None,  # type: ignore[misc]
                deadline_s=DEADLINE_S,
                what=f"controller {member.id} ends",
            )
        sources = [str(self.ours.data(member.id)) for member in self.ours.controllers]
        for node_id in self.kafka.voters:
            data = self.kafka.data(node_id) / f"{LOG_DIRS}-1"
            data.rename(data.with_name("before"))
        took = _ran(
            "export-kafka", sources, [str(self.kafka.config(node_id)) for node_id in self.kafka.voters]
        )
        self.kafka.restart(*self.kafka.voters)
        return took

    def wait_for_topic(self, name: str) -> None:
        """Wait until a topic can be created: a controller is active, and brokers that it knows forward to it."""

        def created() -> bool:
            try:
                Admin(self.bootstrap, **self.login).create_topic(
                    name, replicas=len(self.kafka.brokers), timeout_s=5.0
                )
            except Unavailable as error:
                return "TOPIC_ALREADY_EXISTS" in error.message
            return True

        poll_until(created, deadline_s=DEADLINE_S, what=f"topic {name} is created")


def drawn(count: int, taken: set[int]) -> dict[int, HostPort]:
    ports = free_ports(taken, random.SystemRandom())
    return {node_id: (HOST, next(ports)) for node_id in range(1, count + 1)}


def _all(futures: dict[Any, Any]) -> None:
    for future in futures.values():
        future.result()


def _ran(verb: str, sources: Sequence[str], configs: Sequence[str], *options: str) -> float:
    command = ["storage", verb, *sources, "--json", *options]
    for config in configs:
        command += ["--config", config]
    began = time.monotonic()
    ran = run_verb(*command)
    if ran.returncode != 0 or not json.loads(ran.stdout)["written"]:
        raise Unavailable(f"{' '.join(command)}: {ran.stdout}{ran.stderr}")
    return round(time.monotonic() - began, 2)


def take_over_and_back(
    directory: Path,
    *,
    topics: int,
    controllers: int = 3,
    kafka_controllers: int = 3,
    brokers: int = 3,
    producers: int = 5,
    users: int = 50,
    quotas: int = 50,
    follows: bool = True,
    again: bool = False,
    release: str = KAFKA_VERSION,
) -> TakenOver:
    """Fill a cluster of Kafka's own, take it over under load, and give it back; with `again` take it over once more."""
    began = time.monotonic()
    run = Takeover(
        directory,
        controllers=controllers,
        brokers=brokers,
        kafka_controllers=kafka_controllers,
        users=users,
        follows=follows,
        release=release,
    )
    found = TakenOver(topics=topics, acls=topics, users=users, quotas=quotas)
    try:
        run.start_kafka()
        names = run.fill(topics=topics, quotas=quotas)
        written = names[:: max(1, topics // producers)][:producers]
        with run.load(written):
            run.gap_ms()
            found.logins += run.log_in(names[-1])
            before = run.described(names)
            for way, move in (
                ("taken over", run.take_over),
                ("given back", run.give_back),
                *((("taken over again", run.take_over),) if again else ()),
            ):
                run.gap_ms()
                stopped = time.monotonic()
                found.moved_s[way] = move()
                run.wait_for_topic(way.replace(" ", "-"))
                found.no_controller_s[way] = round(time.monotonic() - stopped, 1)
                found.writers_stopped_ms[way] = run.gap_ms()
                found.differences += _differences(way, before, run.described(names))
                found.logins += run.log_in(names[-1])
            run.progress()
        for topic, sent in run.sent:
            read = read_to_end(run.bootstrap, topic, timeout_s=DEADLINE_S)
            found.acknowledged += len(sent.acknowledged)
            found.failed += len(sent.failed)
            found.lost += sum(1 for number in sent.acknowledged if not read[number])
            found.doubled += sum(1 for count in read.values() if count > 1)
    finally:
        run.kafka.stop()
        asyncio.run(run.ours.stop())
    found.seconds = round(time.monotonic() - began, 1)
    return found


def _differences(way: str, before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    found = []
    for part, was in before.items():
        now = after[part]
        if was != now:
            keys = [key for key in was if was[key] != now.get(key)] if isinstance(was, dict) else []
            shown = [(key, was[key], now.get(key)) for key in keys[:3]]
            found.append(f"{way}: {part}: {len(was)} before, {len(now)} after: {shown}")
    return found
