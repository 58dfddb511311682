"""Questions about brokers: registrations that no rule lets in, polls and requests of a registration that is none."""

from collections.abc import Callable

from msgspec.structs import replace

from metadata_log.ids import BrokerId, Uuid
from metadata_log.image.brokers import BrokerImage
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.records.brokers import BrokerEndpoint, FeatureRange
from metadata_log.records.features import METADATA_VERSION
from metadata_log.wire.commands import (
    AllocateProducerIds,
    AlterPartition,
    Command,
    RegisterBroker,
)
from metadata_log.wire.fetch import FetchRequest
from quorum.decide.brokers import UnregisterBroker
from tests.simulation.rules.contrary.question import (
    CLIENT,
    STRANGER,
    Drawing,
    Errors,
    Question,
    always,
    brokers_of,
)
from tests.simulation.world.cluster_node import CLUSTER_ID, uuid
from tests.support.lab import fetch_of


class BrokerQuestions:
    """About registrations, sessions and what a broker asks for."""

    def __init__(self, draw: Drawing) -> None:
        self._draw = draw

    def registration(self, image: MetadataImage) -> Question | None:
        """Register a broker that no rule lets in."""
        known = brokers_of(image)
        if not known:
            return None
        levels = {METADATA_VERSION: image.features.get(METADATA_VERSION, 0), **image.features}
        features = [FeatureRange(name, 0, level) for name, level in sorted(levels.items())]
        directory = uuid(0xD000 + self._draw.asked)
        other = image.brokers[self._draw.rng.choice(known)]
        at_most_now = tuple(features)
        too_new = tuple(
            FeatureRange(each.name, each.max_version + 1, each.max_version + 2) for each in features
        )
        wrongs: list[tuple[str, tuple[FeatureRange, ...], tuple[Uuid, ...], str]] = [
            ("F" * 22, at_most_now, (directory,), "INCONSISTENT_CLUSTER_ID"),
            (CLUSTER_ID, at_most_now, (), "INVALID_REGISTRATION"),
            (CLUSTER_ID, at_most_now, (directory, directory), "INVALID_REGISTRATION"),
            (CLUSTER_ID, (), (directory,), "INVALID_REGISTRATION"),
            (CLUSTER_ID, too_new, (directory,), "UNSUPPORTED_VERSION"),
        ]
        if other.log_dirs and self._draw.world.profile.unregister_every is None:
            wrongs.append((CLUSTER_ID, at_most_now, other.log_dirs[:1], "INVALID_REGISTRATION"))
        cluster_id, ranges, directories, error = self._draw.rng.choice(wrongs)
        if self._draw.world.data is not None and directories == other.log_dirs[:1]:
            # The directory of a broker whose disk is lost is free, as that of one that is removed: the stranger would be
            # registered with it, get replicas and never start, and the broker be refused once it has its disk again.
            return None
        return Question(self._registers(STRANGER, cluster_id, ranges, directories), always(error))

    def _registers(
        self,
        broker_id: BrokerId,
        cluster_id: str,
        features: tuple[FeatureRange, ...],
        log_dirs: tuple[Uuid, ...],
    ) -> RegisterBroker:
        self._draw.asked += 1
        return RegisterBroker(
            cluster_id=cluster_id,
            broker_id=broker_id,
            incarnation_id=uuid((CLIENT << 40) + self._draw.asked),
            endpoints=(BrokerEndpoint("PLAINTEXT", "127.0.0.1", 9999, 0),),
            features=features,
            rack=None,
            log_dirs=log_dirs,
            previous_broker_epoch=-1,
        )

    def taken_id(self, image: MetadataImage) -> Question | None:
        """Register another process under the id of a broker that has just been heard of."""
        world = self._draw.world
        for broker in world.brokers:
            session, known = broker.session, image.brokers.get(broker.broker_id)
            if session is None or known is None or known.fenced or session.deadline_ms is None:
                continue
            if session.deadline_ms - broker.now_ms() > 2_000 and broker.is_awake():
                command = self._registers(broker.broker_id, CLUSTER_ID, (), ())
                return Question(command, _while_it_lasts(known, session.deadline_ms, broker.now_ms))
        return None

    def too_early(self, image: MetadataImage) -> Question | None:
        """Poll as a fenced broker that has not applied its own registration, and asks to be unfenced."""
        for broker in self._draw.world.brokers:
            known = image.brokers.get(broker.broker_id)
            if known is None or not known.fenced or broker.session is None or not broker.is_awake():
                continue
            if broker.session.broker_epoch == known.broker_epoch:
                poll = self._poll_of(known.broker_id, known.broker_epoch, known.incarnation_id)
                return Question(poll, always(None, "STALE_BROKER_EPOCH"))
        return None

    def _poll_of(self, broker_id: BrokerId, epoch: int, incarnation_id: Uuid) -> FetchRequest:
        """Return a poll of a broker that has applied nothing, and wants to serve."""
        return replace(
            fetch_of(broker_id, epoch, applied=0),
            cluster_id=CLUSTER_ID,
            incarnation_id=incarnation_id,
            last_epoch=-1,
            max_bytes=1_000,
        )

    def old_epoch(self, image: MetadataImage) -> Question | None:
        """Speak as a registration that is none."""
        known = brokers_of(image)
        if not known:
            return None
        broker_id = self._draw.rng.choice(known)
        epoch = image.brokers[broker_id].broker_epoch + self._draw.rng.choice((-1, 10**9))
        if epoch < 0:
            return None
        poll = self._poll_of(broker_id, epoch, image.brokers[broker_id].incarnation_id)
        commands: tuple[Command | FetchRequest, ...] = (
            poll,
            AlterPartition(broker_id=broker_id, broker_epoch=epoch, partitions=()),
            AllocateProducerIds(broker_id=broker_id, broker_epoch=epoch),
        )
        return Question(self._draw.rng.choice(commands), always("STALE_BROKER_EPOCH"))

    def removal(self, _image: MetadataImage) -> Question | None:
        return Question(UnregisterBroker(broker_id=STRANGER), always("BROKER_ID_NOT_REGISTERED"))

    def producer_ids(self, image: MetadataImage) -> Question | None:
        known = brokers_of(image)
        if not known:
            return None
        broker = image.brokers[self._draw.rng.choice(known)]
        command = AllocateProducerIds(broker_id=broker.broker_id, broker_epoch=broker.broker_epoch)
        return Question(
            command,
            always(None, "STALE_BROKER_EPOCH"),
            lambda after, ids: (
                None
                if after.next_producer_id == ids.first + ids.length and ids.length > 0
                else f"{ids} are given, and {after.next_producer_id} is next"
            ),
        )


def _while_it_lasts(
    broker: BrokerImage, deadline_ms: int, now_ms: Callable[[], int]
) -> Callable[[MetadataImage], Errors]:
    """Return what is right for an id whose broker is heard of.

    Nothing is asked if its session is over by the answer: the machine was suspended, with all that runs on it. Nor if the
    broker was unregistered meanwhile: then its id is free.
    """

    def right(at: MetadataImage) -> Errors:
        known = at.brokers.get(broker.broker_id)
        is_registered = known is not None and known.broker_epoch == broker.broker_epoch
        return {"DUPLICATE_BROKER_REGISTRATION"} if is_registered and now_ms() < deadline_ms else set()

    return right
