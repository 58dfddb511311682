"""Pure: the registrations of controllers as the log has made them. Tests: tests/property/test_folding.py."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

import immutables

from metadata_log.digest import hex_of_text
from metadata_log.ids import NodeId
from metadata_log.image.subject import Builders, SubjectBuilder
from metadata_log.records.controllers import RegisterControllerRecord, UnregisterControllerRecord
from metadata_log.records.registry import Record, json_rows

if TYPE_CHECKING:
    from metadata_log.image.metadata_image import Delta

ControllersImage: TypeAlias = "immutables.Map[NodeId, RegisterControllerRecord]"
"""The newest registration of each controller, dead ones too until an operator removes them."""


class ControllersBuilder(SubjectBuilder[ControllersImage]):
    FIELD = "controllers"

    def __init__(self, before: ControllersImage, others: Builders) -> None:
        super().__init__(before, others)
        self._controllers = before.mutate()
        self._touched: set[NodeId] = set()

    def register(self, record: RegisterControllerRecord) -> None:
        self._controllers[record.controller_id] = record
        self._touched.add(record.controller_id)

    def unregister(self, record: UnregisterControllerRecord) -> None:
        controller = self._controllers[record.controller_id]
        if controller.registration_epoch != record.registration_epoch:
            raise ValueError(f"controller {record.controller_id} is at epoch {controller.registration_epoch}")
        del self._controllers[record.controller_id]
        self._touched.add(record.controller_id)

    STATES = {RegisterControllerRecord: register}  # noqa: RUF012 (a ClassVar of the base)
    CHANGES = {UnregisterControllerRecord: unregister}  # noqa: RUF012

    def finish(self) -> ControllersImage:
        return self._controllers.finish()

    def delta(self) -> dict[str, Any]:
        return {"controllers": frozenset(self._touched)}

    @staticmethod
    def touched_lines(image: ControllersImage, touched: "Delta") -> Iterator[str]:
        for controller_id in touched.controllers:
            if (controller := image.get(controller_id)) is not None:
                yield controller_line(controller)

    @staticmethod
    def lines(image: ControllersImage) -> Iterator[str]:
        return map(controller_line, image.values())

    @staticmethod
    def records(image: ControllersImage) -> Iterator[Record]:
        for controller_id in sorted(image):
            yield image[controller_id]

    @staticmethod
    def view(image: ControllersImage) -> dict[str, Any]:
        return {"controllers": json_rows([image[controller_id] for controller_id in sorted(image)])}


def controller_line(controller: RegisterControllerRecord) -> str:
    endpoints = ",".join(
        f"{hex_of_text(e.name)}:{hex_of_text(e.host)}:{e.port}:{e.security_protocol}"
        for e in controller.endpoints
    )
    features = ",".join(f"{hex_of_text(f.name)}:{f.min_version}:{f.max_version}" for f in controller.features)
    return (
        f"n|{controller.controller_id}|{controller.registration_epoch}|{controller.incarnation_id.hex()}"
        f"|{controller.zk_migration_ready:d}|{endpoints}|{features}"
    )
