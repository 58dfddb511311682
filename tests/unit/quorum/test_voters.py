"""Edge: changes of voters through the controller and over HTTP, on a model of Raft: refusals and records."""

import asyncio
import logging
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from msgspec import structs

from metadata_log.errors import (
    ChangePending,
    DuplicateVoter,
    InvalidRequest,
    InvalidUpdateVersion,
    InvariantBroken,
    NotCaughtUp,
    NotController,
    UnsupportedVersion,
    VoterNotFound,
)
from metadata_log.ids import NodeId, Uuid, uuid_text
from metadata_log.limits import VOTER_CAUGHT_UP_MS
from metadata_log.metadata_versions import formatted_with
from metadata_log.records.brokers import BrokerEndpoint
from metadata_log.records.controllers import RegisterControllerRecord
from metadata_log.records.features import METAQUORUM_VERSION_LEVEL
from metadata_log.records.quorum import KAFKA_ENDPOINT, VoterEndpoint
from metadata_log.records.users import UserScramCredentialRecord
from quorum.controller.controller import Controller
from quorum.controller.written import Written
from quorum.decide.features import FeatureUpdate, UpdateFeatures, UpgradeType
from quorum.decide.founding import Founding
from quorum.decide.quorum import AddVoter, RemoveVoter, identities
from quorum.http.metrics import exposition
from quorum.node.config import ControllerSettings, FeatureSettings
from quorum.node.registration import registration_of
from quorum.raft.handshake import INCONSISTENT_VOTER_SET, Refusal
from quorum.raft.raft_log import PeerStatus
from tests.support.callers import anybody
from tests.support.desk import FOUNDERS, at_desk
from tests.support.lab import Lab, observer, registration, setting, settings, spin, uuid


def addition(
    node_id: int,
    directory: Uuid | None = None,
    *,
    validate_only: bool = False,
    replaces: Uuid | None = None,
) -> AddVoter:
    return AddVoter(
        voter_id=NodeId(node_id),
        directory_id=directory or uuid(500 + node_id),
        host="127.0.0.1",
        port=9000 + node_id,
        validate_only=validate_only,
        replaces=replaces,
    )


def removal(node_id: int, directory: Uuid | None = None, *, validate_only: bool = False) -> RemoveVoter:
    return RemoveVoter(
        voter_id=NodeId(node_id),
        directory_id=directory or uuid(500 + node_id),
        validate_only=validate_only,
    )


async def change(
    lab: Lab, controller: Controller, command: AddVoter | RemoveVoter, request_id: Uuid | None = None
) -> Written:
    task = asyncio.create_task(controller.submit(command, anybody(request_id)))
    await spin()
    lab.quorum.commit()
    return await task


def voters_of(controller: Controller) -> dict[NodeId, Uuid]:
    return identities(controller.committed.quorum.voters or ())


async def test_the_first_claim_founds_rafts_voters_and_no_later_one_changes_them() -> None:
    lab = Lab()
    founders = lab.quorum.voters
    lab.lead(1)
    assert list(lab.quorum.changes.values()) == [founders]
    lab.lead(2)
    assert len(lab.quorum.changes) == 1
    lab.same_everywhere()


async def test_a_quorum_that_gets_a_listener_for_kafka_is_told_where_it_listens() -> None:
    """Goal: one that had none gets the endpoints with its next claim, and no level that was not asked for."""
    lab = Lab()
    for node_id in (2, 3):
        lab.controllers[node_id]._settings = with_kafka(node_id)
    founded = lab.lead(1).committed
    lab.lead(2)
    image = lab.lead(3).committed
    assert image.features == founded.features
    voters = image.quorum.voters or ()
    assert [voter.address("KAFKA") for voter in voters] == [("k", 1), ("k", 2), ("k", 3)]
    assert voters_of(lab.controllers[3]) == voters_of(lab.controllers[1])
    lab.same_everywhere()


@pytest.mark.parametrize("listens", [True, False], ids=["kafka", "ours"])
@pytest.mark.parametrize("level", [30, 27, 25, 17])
async def test_a_quorum_is_founded_with_the_levels_that_kafka_formats(level: int, *, listens: bool) -> None:
    """As `kafka-storage format --release-version` finalizes them, with and without a listener for Kafka's brokers."""
    lab = Lab()
    features = FeatureSettings(founding_metadata_version=level)
    for node_id, controller in lab.controllers.items():
        of = with_kafka(node_id) if listens else settings(node_id)
        controller._settings = replace(of, features=features)
    founded = lab.lead(1).committed
    ours = {"metadata.version": level, "metaquorum.version": METAQUORUM_VERSION_LEVEL}
    assert dict(founded.features) == ours | formatted_with(level)
    assert dict(founded.configs.get((4, ""), {})) == ({"min.insync.replicas": "1"} if level > 25 else {})
    lab.lead(2)
    assert lab.lead(2).committed.features == founded.features
    lab.same_everywhere()


async def test_levels_of_the_release_before_stay_until_they_are_raised() -> None:
    """Goal: a cluster that was founded without the levels of messages is not touched by a claim of this release."""
    lab = Lab()
    lab.controllers[1].founding = Founding(levels=(("eligible.leader.replicas.version", 1),))
    founded = lab.lead(1).committed
    leader = lab.lead(2)
    assert leader.committed.features == founded.features and "group.version" not in founded.features
    for node_id in (1, 2, 3):
        await lab.write(leader, registration_of(settings(node_id), uuid(node_id)))
    update = FeatureUpdate("group.version", 1, UpgradeType.UPGRADE)
    await lab.write(leader, structs.replace(registration(11), features=registration(11).features[:3]))
    with pytest.raises(InvalidUpdateVersion, match=r"broker 11 \(fenced\) supports 0 to 0"):
        await leader.submit(UpdateFeatures(updates=(update,), validate_only=False), anybody())
    lab.now_ms += settings(1).timing.session_timeout_ms
    await lab.write(leader, registration(11, incarnation=2))
    await lab.write(leader, UpdateFeatures(updates=(update,), validate_only=False))
    assert lab.lead(3).committed.features["group.version"] == 1
    lab.same_everywhere()


async def test_a_quorum_is_founded_with_users() -> None:
    """Their records need a level of metaquorum.version that the same batch finalizes."""
    lab = Lab()
    alice = UserScramCredentialRecord("alice", 1, b"salt", b"stored", b"server", 4096, b"k" * 16)
    lab.controllers[1].founding = Founding.at(30)._replace(credentials=(alice,))
    assert dict(lab.lead(1).committed.users) == {("alice", 1): alice}
    assert lab.lead(2).committed.users == lab.controllers[1].committed.users
    lab.same_everywhere()


async def test_a_quorum_with_static_voters_gets_dynamic_ones() -> None:
    """Founded with kraft.version 0, as by `storage format --feature kraft.version=0`; then raised, and then changed."""
    lab = Lab()
    for controller in lab.controllers.values():
        controller.founding = Founding(kraft_version=0)
    leader = lab.lead(1)
    assert leader.committed.quorum.kraft_version == 0
    assert voters_of(leader) == FOUNDERS
    lab.quorum.observers = [observer(4, uuid(504))]
    with pytest.raises(UnsupportedVersion):
        await change(lab, leader, addition(4))
    for node_id in (1, 2, 3):
        await lab.write(leader, registration_of(settings(node_id), uuid(node_id)))
    changes = len(lab.quorum.changes)
    update = FeatureUpdate("kraft.version", 1, UpgradeType.UPGRADE)
    await lab.write(leader, UpdateFeatures(updates=(update,), validate_only=False))
    assert len(lab.quorum.changes) == changes, "the voters are the same"
    assert leader.committed.quorum.kraft_version == 1
    await change(lab, leader, addition(4))
    assert sorted(voters_of(leader)) == [1, 2, 3, 4]
    lab.lead(2)
    assert lab.controllers[2].committed.quorum.kraft_version == 1
    lab.same_everywhere()


def with_kafka(node_id: int) -> ControllerSettings:
    own = settings(node_id)
    voters = tuple(replace(voter, kafka=("k", int(voter.id))) for voter in own.voters)
    return replace(own, listen_kafka=("127.0.0.1", 9292), voters=voters)


async def test_a_disk_is_replaced_by_removal_and_addition() -> None:
    lab = Lab()
    controller, fresh = lab.lead(1), uuid(603)
    lab.quorum.caught_up_ms_ago[NodeId(3)] = None
    lab.quorum.observers = [observer(3, fresh)]
    with pytest.raises(DuplicateVoter):
        await change(lab, controller, addition(3, fresh))
    dry = addition(3, fresh, validate_only=True, replaces=FOUNDERS[NodeId(3)])
    judged = await change(lab, controller, dry)
    assert voters_of(controller) == FOUNDERS
    removed = await change(lab, controller, removal(3))
    assert [voter.node_id for voter in removed.outcome[0]] == [1, 2]
    assert removed.end_offset == removed.base_offset + 1
    added = await change(lab, controller, addition(3, fresh))
    assert added.outcome[0][-1] == (3, fresh)
    assert judged.outcome == added.outcome
    assert voters_of(controller) == lab.quorum.voters == FOUNDERS | {NodeId(3): fresh}
    lab.same_everywhere()
    successor = lab.lead(2)  # whose settings still name the old directory
    assert voters_of(successor) == FOUNDERS | {NodeId(3): fresh}


@pytest.mark.parametrize(
    ("linked", "error"),
    [
        ([], InvalidRequest),
        ([observer(3, uuid(604))], InvalidRequest),
        ([observer(3, uuid(603), ago=None, behind=9)], NotCaughtUp),
        ([observer(3, uuid(603), ago=VOTER_CAUGHT_UP_MS + 1)], NotCaughtUp),
        ([observer(3, uuid(603))], None),
    ],
)
async def test_a_replacement_that_is_judged_must_hold_the_log(
    linked: list[PeerStatus], error: type[Exception] | None
) -> None:
    lab = Lab()
    controller = lab.lead(1)
    lab.quorum.observers = linked
    with nullcontext() if error is None else pytest.raises(error, match="controller 3"):
        await change(
            lab,
            controller,
            addition(3, uuid(603), validate_only=True, replaces=FOUNDERS[NodeId(3)]),
        )
    assert voters_of(controller) == FOUNDERS


@pytest.mark.parametrize(
    ("linked", "error"),
    [
        ([], InvalidRequest),
        ([observer(5)], InvalidRequest),
        ([observer(4, uuid(604))], InvalidRequest),
        ([observer(4, ago=None, behind=None)], NotCaughtUp),
        ([observer(4, ago=None, behind=9)], NotCaughtUp),
        ([observer(4, ago=VOTER_CAUGHT_UP_MS + 1, behind=0)], NotCaughtUp),
        ([observer(4, ago=VOTER_CAUGHT_UP_MS, behind=3)], None),
        ([observer(4, uuid(604)), observer(4)], None),
    ],
)
@pytest.mark.parametrize("dry", [True, False])
async def test_only_an_observer_that_holds_the_log_is_added(
    linked: list[PeerStatus], error: type[Exception] | None, *, dry: bool
) -> None:
    """B70"""
    lab = Lab()
    controller = lab.lead(1)
    lab.quorum.observers = linked
    before = controller.committed.end_offset
    if error is None:
        outcome = await change(lab, controller, addition(4, validate_only=dry))
        assert [voter.node_id for voter in outcome.outcome[0]] == [1, 2, 3, 4]
    else:
        with pytest.raises(error, match="controller 4"):
            await change(lab, controller, addition(4, validate_only=dry))
    assert controller.committed.end_offset == before + (error is None and not dry)
    assert (4 in voters_of(controller)) == (error is None and not dry)


@pytest.mark.parametrize(
    ("ago", "removed", "refused"),
    [
        ({}, 3, False),
        ({3: None}, 3, False),
        ({2: None}, 3, True),
        ({2: VOTER_CAUGHT_UP_MS + 1}, 3, True),
        ({}, 1, False),  # the leader itself: 2 and 3 go on
        ({2: None}, 1, True),
    ],
)
@pytest.mark.parametrize("dry", [True, False])
async def test_an_operator_cannot_shoot_the_quorum(
    ago: dict[int, int | None], removed: int, *, refused: bool, dry: bool
) -> None:
    """B70"""
    lab = Lab()
    controller = lab.lead(1)
    lab.quorum.caught_up_ms_ago = {NodeId(node_id): since for node_id, since in ago.items()}
    if refused:
        with pytest.raises(InvalidRequest, match="no majority could decide: of the 2 voters left, 2 cannot"):
            await change(lab, controller, removal(removed, validate_only=dry))
    else:
        await change(lab, controller, removal(removed, validate_only=dry))
    assert (removed in voters_of(controller)) == (refused or dry)


async def test_one_change_at_a_time() -> None:
    lab = Lab()
    controller = lab.lead(1)
    lab.quorum.observers = [observer(4), observer(5)]
    first = asyncio.create_task(controller.submit(addition(4), anybody()))
    await spin()
    for second in (addition(5), removal(3), addition(4), addition(5, validate_only=True)):
        with pytest.raises(ChangePending):
            await controller.submit(second, anybody())
    lab.quorum.commit()
    await first
    await change(lab, controller, addition(5))
    assert sorted(voters_of(controller)) == [1, 2, 3, 4, 5]


async def test_a_repeated_request_is_answered_whatever_the_quorum_looks_like_by_now() -> None:
    lab = Lab()
    controller = lab.lead(1)
    lab.quorum.observers = [observer(4)]
    request_id = uuid(7)
    first = await change(lab, controller, addition(4), request_id)
    lab.quorum.observers = []
    assert await change(lab, controller, addition(4), request_id) == first
    successor = lab.lead(2)
    assert await change(lab, successor, addition(4), request_id) == first
    with pytest.raises(DuplicateVoter):
        await change(lab, successor, addition(4))


async def test_a_repetition_joins_the_change_in_flight() -> None:
    lab = Lab()
    controller = lab.lead(1)
    request_id = uuid(7)
    tasks = [asyncio.create_task(controller.submit(removal(3), anybody(request_id))) for _ in range(2)]
    await spin()
    lab.quorum.commit()
    first, again = [await task for task in tasks]
    assert first == again


async def test_a_refusal_is_told_only_with_proof_of_leadership() -> None:
    lab = Lab()
    controller = lab.lead(1)
    lab.quorum.nodes[NodeId(1)].hold_reads = True
    for refused in (removal(9), addition(4)):  # by the image's rules, and by Raft's view
        task = asyncio.create_task(controller.submit(refused, anybody()))
        await spin()
        assert not task.done()
        lab.quorum.nodes[NodeId(1)].answer_reads()
        with pytest.raises((VoterNotFound, InvalidRequest)):
            await task
    task = asyncio.create_task(controller.submit(addition(4), anybody()))
    await spin()
    lab.quorum.depose()
    with pytest.raises(NotController):
        await task


async def test_a_change_that_is_lost_with_its_leader_changes_nothing() -> None:
    lab = Lab()
    old = lab.lead(1)
    lab.quorum.observers = [observer(4)]
    task = asyncio.create_task(old.submit(addition(4), anybody()))
    await spin()
    new = lab.lead(2, keep=0)
    with pytest.raises(NotController):
        await task
    assert voters_of(new) == lab.quorum.voters == FOUNDERS
    lab.same_everywhere()


async def test_a_change_that_survives_its_leader_is_in_force() -> None:
    lab = Lab()
    old = lab.lead(1)
    task = asyncio.create_task(old.submit(removal(3), anybody()))
    await spin()
    new = lab.lead(2)
    assert [voter.node_id for voter in (await task).outcome[0]] == [1, 2]
    assert sorted(voters_of(new)) == sorted(lab.quorum.voters) == [1, 2]


async def test_voters_of_raft_that_are_not_the_logs_stop_the_process() -> None:
    lab = Lab()
    controller = lab.lead(1)
    await lab.write(controller, setting("1"))
    controller.on_voters(FOUNDERS)
    with pytest.raises(InvariantBroken, match="they change together"):
        controller.on_voters({NodeId(1): FOUNDERS[NodeId(1)]})


async def test_voters_that_a_start_reads_are_logged_as_no_change(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    def logged() -> set[str]:
        events = {
            record.getMessage() for record in caplog.records if record.name == "quorum.controller.controller"
        }
        caplog.clear()
        return {event for event in events if event.startswith("voters_")}

    lab = Lab()
    controller = lab.lead(1)
    await lab.write(controller, setting("1"))
    controller.on_voters(voters_of(controller))
    assert logged() == {"voters_read"}
    await change(lab, controller, removal(3))
    controller.on_voters(voters_of(controller))
    assert logged() == {"voters_changed"}


async def test_a_controller_is_named_by_its_url_as_far_as_it_is_known() -> None:
    lab = Lab()
    controller = lab.controllers[1]
    for leader, url in ((2, "http://127.0.0.1:8002"), (9, None)):
        controller.on_leader_hint(NodeId(leader))
        error = controller.not_controller()
        assert (error.context["controller_id"], error.context["controller_url"]) == (leader, url)


# --- over HTTP


async def test_a_voter_comes_and_goes_over_http(tmp_path: Path) -> None:
    async with at_desk(tmp_path) as (desk, ask):
        desk.lab.quorum.observers = [observer(4)]
        body = {"id": 4, "directory_id": uuid_text(uuid(504)), "raft": "127.0.0.1:9004"}
        status, told = await ask("POST", "/v1/quorum/voters", body | {"validate_only": True})
        assert (status, [voter["id"] for voter in told["voters"]]) == (200, [1, 2, 3, 4])
        assert told["offsets"]["base"] == told["offsets"]["end"]
        status, told = await ask("POST", "/v1/quorum/voters", body)
        assert (status, told["offsets"]["end"] - told["offsets"]["base"]) == (200, 1)
        status, told = await ask("POST", "/v1/quorum/voters", body)
        assert (status, told["error"], told["code"]) == (409, "DUPLICATE_VOTER", 126)
        path = f"/v1/quorum/voters/4?directory_id={uuid_text(uuid(504))}"
        status, told = await ask("DELETE", f"{path}&validate_only=true")
        assert (status, len(told["voters"])) == (200, 3)
        assert (await ask("DELETE", path))[0] == 200
        status, told = await ask("DELETE", path)
        assert (status, told["error"], told["code"]) == (404, "VOTER_NOT_FOUND", 127)
        assert voters_of(desk.controller) == FOUNDERS


async def test_a_host_that_cannot_be_looked_up_is_refused_over_http(tmp_path: Path) -> None:
    async with at_desk(tmp_path) as (desk, ask):
        desk.lab.quorum.observers = [observer(4)]
        body = {"id": 4, "directory_id": uuid_text(uuid(504)), "raft": "ctl4..example:9093"}
        status, told = await ask("POST", "/v1/quorum/voters", body)
        assert (status, told["error"]) == (400, "INVALID_REQUEST")
        assert "raft must be a HOST:PORT" in told["message"]
        assert voters_of(desk.controller) == FOUNDERS


async def test_a_replacement_is_judged_over_http(tmp_path: Path) -> None:
    async with at_desk(tmp_path) as (desk, ask):
        desk.lab.quorum.observers = [observer(3, uuid(603))]
        body = {
            "id": 3,
            "directory_id": uuid_text(uuid(603)),
            "raft": "127.0.0.1:9003",
            "validate_only": True,
        }
        status, told = await ask("POST", "/v1/quorum/voters", body)
        assert (status, told["error"]) == (409, "DUPLICATE_VOTER")
        status, told = await ask("POST", "/v1/quorum/voters", body | {"replaces": uuid_text(uuid(503))})
        assert (status, told["voters"][-1]) == (200, {"id": 3, "directory_id": uuid_text(uuid(603))})
        assert voters_of(desk.controller) == FOUNDERS


async def test_later_is_not_unknown(tmp_path: Path) -> None:
    """Kafka calls both REQUEST_TIMED_OUT; status and family say that nothing was written."""
    async with at_desk(tmp_path) as (desk, ask):
        desk.lab.quorum.observers = [observer(4, ago=None, behind=None)]
        body = {"id": 4, "directory_id": uuid_text(uuid(504)), "raft": "127.0.0.1:9004"}
        status, told = await ask("POST", "/v1/quorum/voters", body)
        assert (status, told["error"], told["family"]) == (503, "REQUEST_TIMED_OUT", "Unavailable")


DIRECTORY = uuid_text(uuid(504))


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/v1/quorum/voters", {}),
        ("POST", "/v1/quorum/voters", {"id": -1, "directory_id": DIRECTORY, "raft": "h:1"}),
        ("POST", "/v1/quorum/voters", {"id": 2**31, "directory_id": DIRECTORY, "raft": "h:1"}),
        ("POST", "/v1/quorum/voters", {"id": 4, "directory_id": "x", "raft": "h:1"}),
        ("POST", "/v1/quorum/voters", {"id": 4, "directory_id": "A" * 22, "raft": "h:1"}),
        *(
            ("POST", "/v1/quorum/voters", {"id": 4, "directory_id": DIRECTORY, "raft": raft})
            for raft in ("h", "h:", ":1", "h:0", "h:70000", "u@h:1", "h:1/", "http://h:1", "0.0.0.0:1", "")
        ),
        ("POST", "/v1/quorum/voters", {"id": 4, "directory_id": DIRECTORY, "raft": "h:1", "dry_run": True}),
        (
            "POST",
            "/v1/quorum/voters",
            {"id": 4, "directory_id": DIRECTORY, "raft": "h:1", "validate_only": 1},
        ),
        *(
            (
                "POST",
                "/v1/quorum/voters",
                {
                    "id": 3,
                    "directory_id": DIRECTORY,
                    "raft": "h:1",
                    "validate_only": dry,
                    "replaces": replaces,
                },
            )
            for dry, replaces in (
                (False, uuid_text(uuid(503))),
                (True, "x"),
                (True, ""),
                (True, None),
            )
        ),
        ("DELETE", "/v1/quorum/voters/3", None),
        ("DELETE", f"/v1/quorum/voters/x?directory_id={uuid_text(uuid(503))}", None),
        ("DELETE", f"/v1/quorum/voters/3?directory_id={uuid_text(uuid(503))}&dry_run=true", None),
        ("DELETE", f"/v1/quorum/voters/3?directory_id={uuid_text(uuid(503))}&validate_only=1", None),
    ],
)
async def test_what_is_not_understood_is_refused(tmp_path: Path, method: str, path: str, body: Any) -> None:
    async with at_desk(tmp_path) as (desk, ask):
        status, told = await ask(method, path, body)
        assert (status, told["error"]) == (400, "INVALID_REQUEST")
        assert voters_of(desk.controller) == FOUNDERS


async def test_the_status_shows_voters_and_observers(tmp_path: Path) -> None:
    """B5, B69"""
    async with at_desk(tmp_path) as (desk, ask):
        desk.lab.quorum.observers = [observer(3, uuid(603), ago=None, behind=None), observer(4)]
        desk.lab.quorum.caught_up_ms_ago[NodeId(3)] = None
        _, told = await ask("GET", "/v1/quorum")
        end = told["high_watermark"]
        assert told["change_pending"] is False
        assert [
            (
                row["id"],
                row["directory_id"],
                row["address"],
                row["role"],
                row["lag_records"],
                row["reachable"],
            )
            for row in told["voters"]
        ] == [
            (1, uuid_text(FOUNDERS[NodeId(1)]), "127.0.0.1:9001", "leader", 0, True),
            (2, uuid_text(FOUNDERS[NodeId(2)]), "127.0.0.1:9002", "follower", 0, True),
            (3, uuid_text(FOUNDERS[NodeId(3)]), "127.0.0.1:9003", None, None, False),
        ]
        assert [
            (row["id"], row["directory_id"], row["address"], row["role"], row["end_offset"], row["reachable"])
            for row in told["observers"]
        ] == [
            (3, uuid_text(uuid(603)), "127.0.0.1:9003", "observer", None, True),
            (4, uuid_text(uuid(504)), "10.0.0.4:9093", "observer", end, True),
        ]
        assert [row["http"] for row in told["voters"]] == [
            settings(1).http_url,
            "http://10.0.0.2:8080",
            None,
        ]
        assert [row["http"] for row in told["observers"]] == [None, "http://10.0.0.4:8080"]
        assert desk.status.warnings() == []


async def test_a_transfer_to_who_leads_has_succeeded_already(tmp_path: Path) -> None:
    async with at_desk(tmp_path) as (desk, ask):
        assert await ask("POST", "/v1/quorum/transfer", {"to": 1}) == (200, {"leader_id": 1})
        desk.lab.quorum.depose()
        status, told = await ask("POST", "/v1/quorum/transfer", {"to": 1})
        assert (status, told["error"]) == (503, "NOT_CONTROLLER")


@pytest.mark.parametrize(
    ("left", "cure"), [((2, 3), "add-voter --id 1"), ((1, 2, 3), "replace-voter --id 1")]
)
async def test_a_controller_without_a_vote_says_so(tmp_path: Path, left: tuple[int, ...], cure: str) -> None:
    async with at_desk(tmp_path) as (desk, ask):
        desk.lab.quorum.voters = {NodeId(n): uuid(701) if n == 1 else FOUNDERS[NodeId(n)] for n in left}
        (warning,) = desk.status.warnings()
        assert warning["code"] == "NOT_A_VOTER"
        assert cure in warning["detail"]
        _, told = await ask("GET", "/v1/quorum")
        assert [row["id"] for row in told["voters"]] == list(left)
        (own,) = told["observers"]
        assert (own["id"], own["role"], own["reachable"]) == (1, "observer", True)
        _, ready = await ask("GET", "/readyz")
        assert warning in ready["reasons"]


async def test_a_voter_that_is_refused_for_its_term_is_named_with_the_cure(tmp_path: Path) -> None:
    async with at_desk(tmp_path) as (desk, ask):
        raft = desk.status.raft()
        peers = [replace(peer, locked_out="accepted in about 9 s") for peer in raft.peers[:1]]
        with patch.object(desk.status, "raft", lambda: replace(raft, peers=peers, led_below="2 leads below")):
            told = [(warning["code"], warning["detail"]) for warning in desk.status.warnings()]
            _, status = await ask("GET", "/v1/quorum")
        assert told == [
            ("VOTER_LOCKED_OUT", "controller 2: accepted in about 9 s"),
            ("VOTER_LOCKED_OUT", "2 leads below"),
        ]
        with patch.object(desk.status, "raft", lambda: replace(raft, two_quorums="9 leads, too")):
            assert ("SECOND_QUORUM", "9 leads, too") in {
                (warning["code"], warning["detail"]) for warning in desk.status.warnings()
            }
        assert [row["locked_out"] for row in status["voters"]][:2] == [
            "2 leads below",
            "accepted in about 9 s",
        ]


async def test_a_directory_that_the_founding_settings_do_not_name_says_what_to_correct(
    tmp_path: Path,
) -> None:
    async with at_desk(tmp_path) as (desk, _ask):
        desk.lab.quorum.voters = {NodeId(1): uuid(701), NodeId(2): FOUNDERS[NodeId(2)]}
        controller = desk.controller
        quorum = controller.committed.quorum._replace(voters=None)
        with patch.object(controller, "committed", replace(controller.committed, quorum=quorum)):
            (warning,) = desk.status.warnings()
        assert warning["code"] == "NOT_A_VOTER"
        assert f"entry of node 1 says {uuid_text(uuid(701))}" in warning["detail"]
        assert "replace-voter" not in warning["detail"]


@pytest.mark.parametrize(
    ("count", "asked"),
    [
        (1, "is the quorum's one voter running"),
        (3, "are 2 of the quorum's 3 voters running"),
        (4, "are 3 of the quorum's 4 voters running"),
    ],
)
async def test_without_a_leader_it_says_how_many_of_how_many(tmp_path: Path, count: int, asked: str) -> None:
    async with at_desk(tmp_path) as (desk, ask):
        desk.lab.quorum.depose()
        desk.lab.quorum.voters = {NodeId(n): uuid(500 + n) for n in range(1, count + 1)}
        status, ready = await ask("GET", "/readyz")
        told = {reason["code"]: reason["detail"] for reason in ready["reasons"]}
        assert (status, told["NO_LEADER"]) == (503, f"no leader is known; {asked} and connected?")


async def test_a_controller_without_the_listener_that_others_have_says_so(tmp_path: Path) -> None:
    async with at_desk(tmp_path) as (desk, ask):
        image, reached = desk.controller.committed, VoterEndpoint(KAFKA_ENDPOINT, "k", 2)
        assert desk.status.warnings() == []
        voters = tuple(
            voter._replace(endpoints=(*voter.endpoints, reached)) for voter in image.quorum.voters or ()
        )
        registered = RegisterControllerRecord(
            NodeId(9),
            uuid(9),
            5,
            zk_migration_ready=False,
            endpoints=(BrokerEndpoint(*reached, 0),),
            features=(),
        )
        for knows, others in (
            (replace(image, quorum=image.quorum._replace(voters=voters)), "2, 3"),
            (replace(image, controllers=image.controllers.set(NodeId(9), registered)), "9"),
        ):
            with patch.object(desk.controller, "committed", knows):
                _, ready = await ask("GET", "/readyz")
                (warning,) = ready["reasons"]
                assert warning["code"] == "KAFKA_LISTENER_MISSING"
                assert f"controllers {others} have" in warning["detail"]
                desk.status.settings = with_kafka(1)
                assert desk.status.warnings() == []
                desk.status.settings = settings(1)


async def test_what_stops_nobody_shows_with_its_reason(tmp_path: Path) -> None:
    async with at_desk(tmp_path) as (desk, ask):
        desk.refused[NodeId(3)] = Refusal(INCONSISTENT_VOTER_SET, "nodes 1 and 3 have different voters")
        desk.room = 1_000
        desk.status.snapshot_set_aside = "DATA/snapshots/x.snapshot: byte 7: a frame is cut short"
        desk.lab.quorum.snapshot_not_fetched = "no snapshot x from http://h:1: refused"
        _, ready = await ask("GET", "/readyz")
        told = {reason["code"]: reason["detail"] for reason in ready["reasons"]}
        assert (
            "controller 3 is refused: nodes 1 and 3 have different voters" in told["INCONSISTENT_VOTER_SET"]
        )
        assert told["DISK_NEARLY_FULL"].startswith("only 1000 bytes are free at ")
        assert "byte 7" in told["SNAPSHOT_SET_ASIDE"]
        assert "from http://h:1: refused" in told["SNAPSHOT_NOT_FETCHED"]
        numbers = exposition(desk.status, now_ms=desk.door.now_ms()).decode().splitlines()
        for code in told:
            assert f'metaquorum_health_reason{{code="{code}"}} 1.0' in numbers
        assert "metaquorum_data_directory_free_bytes 1000.0" in numbers
        assert "metaquorum_raft_links_dropped_total 7.0" in numbers
        peer = f'{{directory_id="{uuid_text(FOUNDERS[NodeId(3)])}",id="3"}}'
        assert f"metaquorum_raft_peer_reachable{peer} 1.0" in numbers
        assert f"metaquorum_raft_peer_entries_behind{peer} 0.0" in numbers
