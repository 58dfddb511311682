"""Edge: add-voter, remove-voter and replace-voter against a fake node that keeps the voters."""

import json
import urllib.parse
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from metadata_log.apply import image_of
from metadata_log.errors import InvalidRequest, NotCaughtUp
from metadata_log.ids import NodeId, uuid_from_text
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.limits import VOTER_CAUGHT_UP_MS
from metadata_log.records.quorum import QuorumVersionRecord, Voter, VoterEndpoint, VotersRecord
from metadata_log.records.snapshots import SnapshotHeaderRecord
from ops import cli
from ops.admin import live_state
from ops.verbs import voters
from ops.verbs.voters import Step, next_step
from quorum.whatif.cluster import Options
from tests.support.terminal import answering
from tests.support.told_node import Node, Reply, Seen, error, node, not_controller

DIRECTORIES = {name: name * 21 + "A" for name in "abcdefg"}
"""Text of uuids, by one letter."""


def row(node_id: int, directory: str, *, ago: int | None = 0, **different: Any) -> dict[str, Any]:
    return {
        "id": node_id,
        "directory_id": DIRECTORIES[directory],
        "address": f"h:{node_id}",
        "role": "follower",
        "end_offset": 10,
        "log_start_offset": 0,
        "lag_records": 0,
        "last_caught_up_ms_ago": ago,
        "reachable": ago is not None,
    } | different


class Quorum:
    """What one leading node says and does; `wishes` are the changes it was asked for."""

    def __init__(self, told: Node) -> None:
        self.told = told
        self.voters = [row(1, "a"), row(2, "b"), row(3, "c")]
        self.observers: list[dict[str, Any]] = []
        self.registered = {1, 2, 3}
        self.wishes: list[tuple[str, int, str, bool]] = []
        self.on_view: Callable[[], None] = lambda: None
        self.refuses_to_add: Reply | None = None
        self.answers_view: Reply | None = None
        told.answer = self.answer

    def answer(self, seen: Seen) -> Reply:
        url = urllib.parse.urlsplit(seen.path)
        if seen.method == "GET" and url.path == "/v1/configs":
            return Reply()
        if seen.method == "GET" and url.path == "/v1/controllers":
            items = [{"controller_id": node_id} for node_id in sorted(self.registered)]
            return Reply(body=json.dumps({"items": items}).encode())
        if seen.method == "GET" and url.path == "/v1/quorum":
            self.on_view()
            return self.answers_view or Reply(body=json.dumps(self.view()).encode())
        assert seen.request_id is not None
        if seen.method == "POST":
            body = json.loads(seen.body)
            assert body["raft"] == f"h:{body['id']}"
            dry = body["validate_only"]
            wish = ("add", body["id"], body["directory_id"], dry)
        else:
            query = urllib.parse.parse_qs(url.query)
            dry = query.get("validate_only") == ["true"]
            wish = ("remove", int(url.path.rpartition("/")[2]), query["directory_id"][0], dry)
        self.wishes.append(wish)
        before = list(self.voters), list(self.observers)
        if seen.method == "POST" and "replaces" in body:
            assert dry
            assert self.change("remove", body["id"], body["replaces"]) is None
        refused = self.change(*wish[:3])
        after = [{key: voter[key] for key in ("id", "directory_id")} for voter in self.voters]
        if dry:
            self.voters, self.observers = before
        return refused or Reply(body=json.dumps({"voters": after, "offsets": {"base": 1, "end": 2}}).encode())

    def image(self) -> MetadataImage:
        """Return the state whose voters these are."""
        voters = tuple(
            Voter(
                NodeId(each["id"]),
                uuid_from_text(each["directory_id"]),
                (VoterEndpoint("CONTROLLER", "h", each["id"]),),
                0,
                1,
            )
            for each in self.voters
        )
        header = SnapshotHeaderRecord(
            cluster_id="c" * 22, end_offset=10, controller_epoch=1, last_time_ms=0, last_crc=0
        )
        return image_of([QuorumVersionRecord(1), VotersRecord(voters)], header=header)

    def view(self) -> dict[str, Any]:
        return {
            "cluster_id": "c" * 22,
            "leader_id": 1,
            "controller_epoch": 1,
            "high_watermark": 10,
            "log_start_offset": 0,
            "digest": {"end_offset": 10, "value": "d"},
            "node_id": 1,
            "change_pending": False,
            "voters": self.voters,
            "observers": self.observers,
        }

    def change(self, verb: str, node_id: int, directory_id: str) -> Reply | None:
        identity = (node_id, directory_id)
        if verb == "remove":
            left = [voter for voter in self.voters if (voter["id"], voter["directory_id"]) != identity]
            if left == self.voters:
                return error("VOTER_NOT_FOUND", 404)
            self.voters = left
            return None
        if any(voter["id"] == node_id for voter in self.voters):
            return error("DUPLICATE_VOTER", 409)
        if self.refuses_to_add is not None:
            return self.refuses_to_add
        (fresh,) = [item for item in self.observers if (item["id"], item["directory_id"]) == identity]
        self.observers.remove(fresh)
        self.voters = sorted([*self.voters, fresh], key=lambda voter: int(voter["id"]))
        return None


@pytest.fixture
def quorum(monkeypatch: pytest.MonkeyPatch) -> Iterator[Quorum]:
    monkeypatch.setattr(voters, "LOOK_AGAIN_S", 0.001)
    with node() as told:
        monkeypatch.setenv("METAQUORUM_BOOTSTRAP", told.url)
        quorum = Quorum(told)
        monkeypatch.setattr(live_state, "live_image", lambda _: quorum.image())
        monkeypatch.setattr(live_state, "live_options", lambda _: Options())
        yield quorum


def run(*words: str) -> int:
    return cli.main(["quorum", *words])


def wiped(quorum: Quorum) -> None:
    """Controller 3 lost its disk c, and follows with disk d."""
    quorum.voters[2] = row(3, "c", ago=None)
    quorum.observers = [row(3, "d", role="observer")]


def test_an_observer_is_added(quorum: Quorum, capsys: pytest.CaptureFixture[str]) -> None:
    quorum.observers = [row(4, "d"), row(5, "e")]
    assert run("add-voter", "--id", "4", "--dry-run") == 0
    said = capsys.readouterr()
    says, record = said.out.splitlines()
    assert says == "controller 4 would vote; the voters would be 1, 2, 3, 4"
    assert record.startswith("Voters voters=") and DIRECTORIES["d"] in record
    assert said.err == ""
    assert run("add-voter", "--id", "4", "--json") == 0
    said = capsys.readouterr()
    told = json.loads(said.out)
    assert (told["id"], told["directory_id"], told["raft"]) == (4, DIRECTORIES["d"], "h:4")
    assert [voter["id"] for voter in told["voters"]] == [1, 2, 3, 4]
    assert f'directory_id = "{DIRECTORIES["d"]}"' in said.err
    assert quorum.wishes == [("add", 4, DIRECTORIES["d"], True), ("add", 4, DIRECTORIES["d"], False)]


def test_what_is_named_is_not_asked_for(quorum: Quorum) -> None:
    quorum.observers = [row(4, "d")]
    assert run("add-voter", "--id", "4", "--directory-id", DIRECTORIES["d"], "--raft", "h:4") == 0
    assert [seen.path for seen in quorum.told.seen] == ["/v1/quorum/voters"]


@pytest.mark.parametrize(
    ("observers", "flags", "code", "said"),
    [
        ([], (), 3, "no such controller 4 follows the leader"),
        ([row(4, "d"), row(4, "e")], (), 3, f"--directory-id: {DIRECTORIES['d']}, {DIRECTORIES['e']}"),
        ([row(4, "d"), row(4, "e")], ("--directory-id", DIRECTORIES["e"]), 0, ""),
        ([row(4, "d")], ("--directory-id", DIRECTORIES["e"]), 3, "no such controller 4"),
        ([row(4, "d", address=None)], (), 3, "name it with --raft"),
        ([row(4, "d", address=None)], ("--raft", "h:4"), 0, ""),
    ],
)
def test_who_is_to_be_added_must_be_clear(
    quorum: Quorum,
    capsys: pytest.CaptureFixture[str],
    observers: list[dict[str, Any]],
    flags: tuple[str, ...],
    code: int,
    said: str,
) -> None:
    quorum.observers = observers
    assert run("add-voter", "--id", "4", *flags) == code
    assert said in capsys.readouterr().err
    assert len(quorum.wishes) == (code == 0)


def test_a_voter_is_not_added_again(quorum: Quorum, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("add-voter", "--id", "3") == 3
    assert f"DUPLICATE_VOTER: controller 3 is a voter already, with directory {DIRECTORIES['c']}" in (
        capsys.readouterr().err
    )


def test_a_voter_is_removed(quorum: Quorum, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("remove-voter", "--id", "3", "--dry-run") == 0
    says, record = capsys.readouterr().out.splitlines()
    assert says == "controller 3 would vote no more; the voters would be 1, 2"
    assert record.startswith("Voters voters=") and DIRECTORIES["c"] not in record
    assert run("remove-voter", "--id", "3", "--yes") == 0
    said = capsys.readouterr()
    assert said.out == "controller 3 votes no more; the voters are 1, 2\n"
    assert "take the [[voters]] entry of node 3 out" in said.err
    assert run("remove-voter", "--id", "3", "--yes") == 3
    assert "VOTER_NOT_FOUND: controller 3 is no voter" in capsys.readouterr().err
    assert quorum.wishes == [("remove", 3, DIRECTORIES["c"], True), ("remove", 3, DIRECTORIES["c"], False)]


def test_a_vote_that_nobody_has_is_not_asked_about(quorum: Quorum, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: the question does not tell how many voters would be left by what is refused."""
    screen = answering(monkeypatch, "n")
    assert run("remove-voter", "--id", "9") == 3
    assert "VOTER_NOT_FOUND: controller 9 is no voter" in screen.getvalue()
    assert "Go on?" not in screen.getvalue() and "voters are left" not in screen.getvalue()
    screen = answering(monkeypatch, "n")
    assert run("remove-voter", "--id", "3") == 3
    assert "2 voters are left, and the quorum goes on while 2 of them run" in screen.getvalue()
    assert quorum.wishes == []


REMOVED, ADDED = ("remove", 3, DIRECTORIES["c"], False), ("add", 3, DIRECTORIES["d"], False)
JUDGED = ("add", 3, DIRECTORIES["d"], True)


def test_a_disk_is_replaced(quorum: Quorum, capsys: pytest.CaptureFixture[str]) -> None:
    wiped(quorum)
    assert run("replace-voter", "--id", "3") == 0
    said = capsys.readouterr()
    new, old = DIRECTORIES["d"], DIRECTORIES["c"]
    assert said.out == (
        f"controller 3 votes now with directory {new} in place of {old}; the voters are 1, 2, 3\n"
    )
    assert f"directory {old} of controller 3 votes no more" in said.err
    assert f'write directory_id = "{new}" into the [[voters]] entry of node 3' in said.err
    assert quorum.wishes == [JUDGED, REMOVED, ADDED]


def test_a_dry_run_of_a_replacement_tells_the_same_and_changes_nothing(
    quorum: Quorum, capsys: pytest.CaptureFixture[str]
) -> None:
    wiped(quorum)
    before = list(quorum.voters)
    assert run("replace-voter", "--id", "3", "--dry-run", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["removed"], told["added"], told["dry_run"]) == (DIRECTORIES["c"], DIRECTORIES["d"], True)
    assert [voter["id"] for voter in told["voters"]] == [1, 2, 3]
    assert told["voters"][2]["directory_id"] == DIRECTORIES["d"]
    assert [[voter["directory_id"] for voter in each["voters"]] for each in told["records"]] == [
        [DIRECTORIES["a"], DIRECTORIES["b"]],
        [DIRECTORIES["a"], DIRECTORIES["b"], DIRECTORIES["d"]],
    ]
    assert (told["end_offset"], told["records"][1]["type"]) == (10, "Voters")
    assert quorum.voters == before
    assert quorum.wishes == [("remove", 3, DIRECTORIES["c"], True), ("add", 3, DIRECTORIES["d"], True)]


def test_a_dry_run_of_a_replacement_tells_why_the_new_disk_would_be_refused(
    quorum: Quorum, capsys: pytest.CaptureFixture[str]
) -> None:
    wiped(quorum)
    before = list(quorum.voters)
    quorum.refuses_to_add = error("INVALID_REQUEST", 400)
    assert run("replace-voter", "--id", "3", "--dry-run") == 3
    said = capsys.readouterr()
    assert said.out == ""
    assert "INVALID_REQUEST" in said.err
    assert quorum.voters == before
    assert [wish[0] for wish in quorum.wishes] == ["remove", "add"]


def test_a_new_disk_that_would_be_refused_costs_no_vote(quorum: Quorum) -> None:
    wiped(quorum)
    before = list(quorum.voters)
    quorum.refuses_to_add = error("INVALID_REQUEST", 400)
    assert run("replace-voter", "--id", "3") == 3
    assert quorum.voters == before
    assert quorum.wishes == [JUDGED]


@pytest.mark.parametrize("verb", ["add-voter", "remove-voter", "replace-voter"])
@pytest.mark.parametrize("body", [b"[]", b"{}", b'{"voters": [{}], "observers": []}'])
def test_who_answers_otherwise_than_a_controller_is_told_so(
    quorum: Quorum, capsys: pytest.CaptureFixture[str], verb: str, body: bytes
) -> None:
    quorum.answers_view = Reply(body=body)
    assert run(verb, "--id", "3", *(["--yes"] if verb == "remove-voter" else [])) == 4
    assert "answers, but not as a controller does" in capsys.readouterr().err


def test_an_error_of_the_leader_is_told(quorum: Quorum, capsys: pytest.CaptureFixture[str]) -> None:
    quorum.answers_view = error("UNKNOWN_SERVER_ERROR", 500, family="Fault")
    assert run("remove-voter", "--id", "3", "--yes") == 6
    assert "UNKNOWN_SERVER_ERROR" in capsys.readouterr().err


def test_a_replacement_goes_on_where_it_was_interrupted(
    quorum: Quorum, capsys: pytest.CaptureFixture[str]
) -> None:
    wiped(quorum)
    del quorum.voters[2]
    assert run("replace-voter", "--id", "3", "--dry-run") == 0
    assert quorum.wishes == [("add", 3, DIRECTORIES["d"], True)]
    capsys.readouterr()
    assert run("replace-voter", "--id", "3") == 0
    assert f"controller 3 votes now with directory {DIRECTORIES['d']}; the" in capsys.readouterr().out
    assert run("replace-voter", "--id", "3", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["removed"], told["added"]) == (None, None)
    assert quorum.wishes[1:] == [ADDED]
    assert run("replace-voter", "--id", "3") == 0
    assert "nothing to replace; the voters are 1, 2, 3" in capsys.readouterr().out


def test_the_old_disk_goes_only_when_the_new_one_holds_the_log(quorum: Quorum) -> None:
    wiped(quorum)
    quorum.observers = []
    views = iter([[], [row(3, "d", ago=None)], [row(3, "d", ago=VOTER_CAUGHT_UP_MS + 1)]])

    def look() -> None:
        assert quorum.wishes == [] or quorum.wishes[:2] == [JUDGED, REMOVED]
        if not quorum.wishes:
            quorum.observers = next(views, [row(3, "d")])

    quorum.on_view = look
    assert run("replace-voter", "--id", "3") == 0
    assert quorum.wishes == [JUDGED, REMOVED, ADDED]


def test_the_new_disk_is_waited_for_once_more_after_the_removal(
    quorum: Quorum, capsys: pytest.CaptureFixture[str]
) -> None:
    wiped(quorum)
    away = [True] * 3

    def look() -> None:
        if quorum.wishes:
            quorum.observers = [row(3, "d", ago=None if away and away.pop() else 0)]

    quorum.on_view = look
    assert run("replace-voter", "--id", "3") == 0
    assert quorum.wishes == [JUDGED, REMOVED, ADDED]
    assert not away


def test_what_was_done_is_told_when_the_time_is_over(
    quorum: Quorum, capsys: pytest.CaptureFixture[str]
) -> None:
    wiped(quorum)

    def look() -> None:
        if quorum.wishes:
            quorum.observers = []

    quorum.on_view = look
    assert run("replace-voter", "--id", "3", "--timeout", "300ms") == 3
    said = capsys.readouterr().err
    assert "no controller 3 with a new disk follows the leader" in said
    assert f"directory {DIRECTORIES['c']} votes no more: run this again to go on" in said


@pytest.mark.parametrize(
    ("voters", "observers", "code", "said"),
    [
        ([row(3, "c", ago=None)], [], 3, "no controller 3 with a new disk follows"),
        ([], [], 3, "no controller 3 with a new disk follows"),
        ([row(3, "c", ago=None)], [row(3, "d", ago=None)], 4, "does not hold the whole log yet"),
        ([row(3, "c")], [row(3, "d")], 3, "voter 3 runs on its old disk"),
        ([row(3, "c", ago=None)], [row(3, "d"), row(3, "e")], 3, "several controllers follow as 3"),
    ],
)
def test_what_cannot_be_replaced_is_left_alone(
    quorum: Quorum,
    capsys: pytest.CaptureFixture[str],
    voters: list[dict[str, Any]],
    observers: list[dict[str, Any]],
    code: int,
    said: str,
) -> None:
    quorum.voters[2:], quorum.observers = voters, observers
    for flag in ("--dry-run", "--timeout=50ms"):
        assert run("replace-voter", "--id", "3", flag) == code
        assert said in capsys.readouterr().err
    assert quorum.wishes == []


def test_an_id_that_no_controller_has_is_refused_though_there_is_time(
    quorum: Quorum, capsys: pytest.CaptureFixture[str]
) -> None:
    """Goal: no wait makes it one. Method: the time is long enough that the test would not end."""
    assert run("replace-voter", "--id", "7", "--timeout", "1h") == 3
    assert "no controller 7 is known; the voters are 1, 2, 3" in capsys.readouterr().err
    assert quorum.wishes == []


def test_the_leader_is_found_though_the_list_does_not_have_it(quorum: Quorum) -> None:
    quorum.observers = [row(4, "d")]
    with node() as follower:
        follower.answer = lambda _: not_controller(quorum.told.url)
        assert run("add-voter", "--id", "4", "--bootstrap", follower.url) == 0
    assert quorum.wishes == [("add", 4, DIRECTORIES["d"], False)]


def test_a_step_is_a_pure_look_at_the_leaders_view() -> None:
    old, new = row(3, "c", ago=None), row(3, "d")
    view = {"voters": [row(1, "a"), old], "observers": [new]}
    voters = [{"id": item["id"], "directory_id": item["directory_id"]} for item in view["voters"]]
    assert next_step(view, 3) == Step(voters, remove=DIRECTORIES["c"], add=DIRECTORIES["d"], raft="h:3")
    assert next_step(view | {"voters": [row(1, "a")]}, 3) == Step(
        voters[:1], add=DIRECTORIES["d"], raft="h:3"
    )
    assert next_step(view, 1) == Step(voters)
    assert isinstance(next_step(view | {"observers": []}, 3).wait, InvalidRequest)
    assert isinstance(
        next_step(view | {"observers": [row(3, "d", ago=VOTER_CAUGHT_UP_MS + 1)]}, 3).wait, NotCaughtUp
    )
