"""Pure: the brokers as the log has made them. Tests: tests/property/test_folding.py."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

import immutables

from metadata_log.digest import hex_of_text, joined_uuids
from metadata_log.ids import BrokerId
from metadata_log.image.subject import Builders, SubjectBuilder
from metadata_log.records.brokers import (
    BrokerRegistrationChangeRecord,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)
from metadata_log.records.registry import Record, json_rows

if TYPE_CHECKING:
    from metadata_log.image.metadata_image import Delta


class BrokerImage(RegisterBrokerRecord):
    """A registration, as later records changed it."""

    __slots__ = ()

    @property
    def is_active(self) -> bool:
        """Whether it may lead and join an ISR: neither fenced nor shutting down."""
        return not (self.fenced or self.in_controlled_shutdown)

    @property
    def is_cordoned(self) -> bool:
        """Whether each of its log directories is cordoned: it gets no new replica."""
        return bool(self.log_dirs) and set(self.log_dirs) <= set(self.cordoned_log_dirs or ())

    def changed_by(self, record: BrokerRegistrationChangeRecord) -> "BrokerImage":
        """Return this broker after `record`."""
        return self._replace(
            fenced=self.fenced if record.fenced is None else record.fenced,
            in_controlled_shutdown=self.in_controlled_shutdown or bool(record.in_controlled_shutdown),
            log_dirs=self.log_dirs if record.log_dirs is None else record.log_dirs,
            cordoned_log_dirs=(
                self.cordoned_log_dirs if record.cordoned_log_dirs is None else record.cordoned_log_dirs
            ),
        )


BrokersImage: TypeAlias = "immutables.Map[BrokerId, BrokerImage]"


class BrokersBuilder(SubjectBuilder[BrokersImage]):
    FIELD = "brokers"

    def __init__(self, before: BrokersImage, others: Builders) -> None:
        super().__init__(before, others)
        self._brokers = before.mutate()
        self._touched: set[BrokerId] = set()

    def register(self, record: RegisterBrokerRecord) -> None:
        self._put(BrokerImage._make(record))

    def unregister(self, record: UnregisterBrokerRecord) -> None:
        self._registered(record.broker_id, record.broker_epoch)
        del self._brokers[record.broker_id]
        self._touched.add(record.broker_id)

    def change(self, record: BrokerRegistrationChangeRecord) -> None:
        self._put(self._registered(record.broker_id, record.broker_epoch).changed_by(record))

    STATES = {RegisterBrokerRecord: register}  # noqa: RUF012 (a ClassVar of the base)
    CHANGES = {UnregisterBrokerRecord: unregister, BrokerRegistrationChangeRecord: change}  # noqa: RUF012

    def _put(self, broker: BrokerImage) -> None:
        self._brokers[broker.broker_id] = broker
        self._touched.add(broker.broker_id)

    def _registered(self, broker_id: BrokerId, broker_epoch: int) -> BrokerImage:
        broker = self._brokers[broker_id]
        if broker.broker_epoch != broker_epoch:
            raise ValueError(f"broker {broker_id} is at epoch {broker.broker_epoch}")
        return broker

    def finish(self) -> BrokersImage:
        return self._brokers.finish()

    def delta(self) -> dict[str, Any]:
        return {"brokers": frozenset(self._touched)}

    @staticmethod
    def touched_lines(image: BrokersImage, touched: "Delta") -> Iterator[str]:
        for broker_id in touched.brokers:
            if (broker := image.get(broker_id)) is not None:
                yield broker_line(broker)

    @staticmethod
    def lines(image: BrokersImage) -> Iterator[str]:
        return map(broker_line, image.values())

    @staticmethod
    def records(image: BrokersImage) -> Iterator[Record]:
        for broker_id in sorted(image):
            yield RegisterBrokerRecord._make(image[broker_id])

    @staticmethod
    def view(image: BrokersImage) -> dict[str, Any]:
        return {"brokers": json_rows([image[broker_id] for broker_id in sorted(image)])}


def broker_line(broker: BrokerImage) -> str:
    endpoints = ",".join(
        f"{hex_of_text(e.name)}:{hex_of_text(e.host)}:{e.port}:{e.security_protocol}"
        for e in broker.endpoints
    )
    features = ",".join(f"{hex_of_text(f.name)}:{f.min_version}:{f.max_version}" for f in broker.features)
    cordoned = "-" if broker.cordoned_log_dirs is None else joined_uuids(broker.cordoned_log_dirs)
    return (
        f"b|{broker.broker_id}|{broker.broker_epoch}|{broker.incarnation_id.hex()}|{broker.fenced:d}"
        f"|{broker.in_controlled_shutdown:d}|{hex_of_text(broker.rack or '')}|{endpoints}|{features}"
        f"|{joined_uuids(broker.log_dirs)}|{cordoned}"
    )
