"""Pure: what may happen to the registrations of controllers.

Each process registers itself, and its registration lasts until the next process of its id registers or an operator removes
it: a feature is finalized only at levels that every registered controller supports (`features.py`). Source: KIP-919; Kafka's
ClusterControlManager. Kafka removes no registration; that one can be removed is ours.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple

from metadata_log.batch import Cause
from metadata_log.errors import (
    InconsistentClusterId,
    InvalidRegistration,
    NodeStillAlive,
    PolicyViolation,
    UnknownControllerId,
    UnsupportedVersion,
)
from metadata_log.ids import BrokerId, NodeId
from metadata_log.image.features import metaquorum_version
from metadata_log.limits import CONTROLLER_REGISTRATIONS_MAX
from metadata_log.records.controllers import RegisterControllerRecord, UnregisterControllerRecord
from metadata_log.records.features import METAQUORUM_VERSION
from metadata_log.records.quorum import Voter, VotersRecord
from metadata_log.records.registry import Record
from metadata_log.wire.commands import Command, RegisterController
from quorum.decide.access import ALTERS_CLUSTER, BY_CONTROLLER, DESCRIBES
from quorum.decide.context import DecideContext
from quorum.decide.decides import Decides
from quorum.decide.decision import Decision
from quorum.decide.quorum import has_static_voters, reached_at, speaks_for_voter


@dataclass(frozen=True, slots=True, kw_only=True)
class UnregisterController(Command):
    """Remove the registration of a controller that is gone. With `validate_only` nothing is written."""

    controller_id: NodeId
    validate_only: bool


class ControllerRegistered(NamedTuple):
    controller_id: NodeId
    registration_epoch: int


class ControllerUnregistered(NamedTuple):
    controller_id: NodeId
    registration_epoch: int


def register(context: DecideContext, command: RegisterController) -> Decision:
    """Decide the registration of a controller process.

    Where a voter is reached, the log says as it registers. As in Kafka nothing else is compared with the registration
    before: an equal one is written again. A controller sends none that its own log shows already
    (`quorum/node/registration.py`).

    Raises:
        InconsistentClusterId.
        PolicyViolation: too many controllers are registered.
        InvalidRegistration: the id is a broker's.
        UnsupportedVersion: the cluster is at a level of metaquorum.version that the controller does not know.
    """
    image, controller_id = context.image, command.controller_id
    if command.cluster_id != context.cluster_id:
        raise InconsistentClusterId(
            f"this is cluster {context.cluster_id}, the controller belongs to {command.cluster_id}: "
            "correct the cluster id or the voters in its settings"
        )
    existing = image.controllers.get(controller_id)
    if context.checks_as_brokers and existing is None and BrokerId(controller_id) in image.brokers:
        raise InvalidRegistration(
            f"id {controller_id} is a broker's; brokers and controllers share one id space: give this controller another"
        )
    if existing is None and len(image.controllers) >= CONTROLLER_REGISTRATIONS_MAX:
        raise PolicyViolation(
            f"{CONTROLLER_REGISTRATIONS_MAX} controllers are registered; unregister some that are gone "
            "(metaquorum controllers list)"
        )
    level = metaquorum_version(image.features)
    if any(
        feature.name == METAQUORUM_VERSION and not feature.min_version <= level <= feature.max_version
        for feature in command.features
    ):
        raise UnsupportedVersion(
            f"controller {controller_id} does not support {METAQUORUM_VERSION} {level}, at which the cluster is: upgrade it"
        )
    epoch = image.end_offset
    record = RegisterControllerRecord(
        controller_id, command.incarnation_id, epoch, False, command.endpoints, command.features
    )
    previous = None if existing is None else existing.registration_epoch
    cause = Cause("CONTROLLER_REGISTERED", previous, {"controller_id": controller_id})
    records: list[Record] = [record]
    if (voters := _moved(context, command)) is not None:
        records.append(VotersRecord(voters))
    return Decision(records=tuple(records), outcome=ControllerRegistered(controller_id, epoch), cause=cause)


def _moved(context: DecideContext, command: RegisterController) -> tuple[Voter, ...] | None:
    """Return the voters with the addresses of one that was moved; None: no voter was."""
    controller_id = command.controller_id
    if has_static_voters(context.image) or not speaks_for_voter(context, controller_id):
        return None
    return reached_at(context.image, controller_id, command.endpoints)


def unregister(context: DecideContext, command: UnregisterController) -> Decision:
    """Decide the removal of a registration, so that a controller which is gone holds back no level of a feature.

    Raises:
        UnknownControllerId: it is not registered.
        NodeStillAlive: it votes, or is linked with this controller, or is this controller.
    """
    controller_id = command.controller_id
    controller = context.image.controllers.get(controller_id)
    if controller is None:
        raise UnknownControllerId(f"controller {controller_id} is not registered")
    if controller_id in [voter.node_id for voter in context.image.quorum.voters or ()]:
        raise NodeStillAlive(
            f"controller {controller_id} is a voter: take its vote first "
            f"(metaquorum quorum remove-voter --id {controller_id})"
        )
    if controller_id == context.node_id or context.is_linked(controller_id):
        raise NodeStillAlive(
            f"controller {controller_id} runs, and would register again: stop it first, then repeat this"
        )
    epoch = controller.registration_epoch
    outcome = ControllerUnregistered(controller_id, epoch)
    if command.validate_only:
        return Decision(outcome=outcome)
    cause = Cause("CONTROLLER_UNREGISTERED", epoch, {"controller_id": controller_id})
    return Decision(records=(UnregisterControllerRecord(controller_id, epoch),), outcome=outcome, cause=cause)


DECISIONS: Final = (
    Decides(RegisterController, "RegisterController", ControllerRegistered, BY_CONTROLLER, register),
    Decides(UnregisterController, "UnregisterController", ControllerUnregistered, ALTERS_CLUSTER, unregister),
)
OTHER_OPERATIONS: Final = {"DescribeControllers": DESCRIBES}
