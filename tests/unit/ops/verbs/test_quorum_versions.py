"""Edge: `quorum versions`, `--version` and what an upgrade needs next."""

import json
from pathlib import Path

import pytest

from metadata_log.node.release import VERSION
from ops import cli
from ops.admin import live_state
from ops.admin.versions import Level, next_step
from quorum.whatif.cluster import Options
from tests.support.placements import a_cluster
from tests.support.told_node import Reply, Seen, error, node
from tests.unit.ops.admin.test_health import quorum, voter

OURS = "metaquorum.version"
ROOT = Path(__file__).resolve().parents[4]


def told(seen: Seen, *, refused_above: int) -> Reply:
    """Answer as the active controller of level 1 that knows 3, of which one node supports less."""
    path = seen.path.partition("?")[0]
    if seen.method == "POST":
        (wanted,) = json.loads(seen.body)["updates"]
        assert json.loads(seen.body)["validate_only"]
        if wanted["level"] > refused_above:
            refusal = error("INVALID_UPDATE_VERSION", 400, code=95)
            why = "broker 12 supports 1 to 2. Upgrade them; those that are gone for good: ..."
            body = json.loads(refusal.body) | {"message": f"{OURS} cannot become {wanted['level']}: {why}"}
            return Reply(400, json.dumps(body).encode())
        return Reply(body=b'{"features": [], "offsets": {"base": 1, "end": 1}}')
    match path:
        case "/v1/quorum":
            return Reply(body=json.dumps(quorum(1, voters=[voter(1)]) | {"version": "1.2.3"}).encode())
        case "/readyz":
            return Reply(body=b'{"ready": true, "reasons": []}')
        case "/v1/features":
            row = {"feature": OURS, "level": 1, "supported_min": 1, "supported_max": 3}
            return Reply(body=json.dumps({"items": [row]}).encode())
        case "/v1/brokers":
            return Reply(body=b'{"items": []}')
    return error("CLUSTER_AUTHORIZATION_FAILED", 403)


def test_the_highest_possible_level_is_found_and_what_holds_back_the_newest(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with node() as controller:
        controller.answer = lambda seen: told(seen, refused_above=2)
        assert cli.main(["quorum", "versions", "-o", "json", "--bootstrap", controller.url]) == 0
        shown = capsys.readouterr()
        assert cli.main(["quorum", "versions", "--bootstrap", controller.url]) == 0
    value = json.loads(shown.out)
    assert value["features"] == [
        {"feature": OURS, "level": 1, "possible": 2, "newest": 3, "held_back_by": "broker 12 supports 1 to 2"}
    ]
    assert [(one["node"], one["version"]) for one in value["nodes"]] == [("controller 1", "1.2.3")]
    assert f"features upgrade {OURS}=2" in value["next"]
    assert "which levels each node supports is not known" in shown.err
    assert "next: all nodes support it" in capsys.readouterr().out


def test_without_a_leader_the_releases_and_levels_are_shown_at_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Goal: no read or dry run waits for a leader that all controllers say there is not. Each would wait an hour."""

    def answer(seen: Seen) -> Reply:
        if seen.path.startswith("/v1/quorum"):
            view = quorum(1, voters=[voter(1)]) | {"version": "1.2.3", "leader_id": -1}
            return Reply(body=json.dumps(view).encode())
        if "consistency=stale" not in seen.path and seen.path.startswith("/v1/"):
            return error("NOT_CONTROLLER", 503)
        return told(seen, refused_above=2)

    with node() as controller:
        controller.answer = answer
        words = ["quorum", "versions", "--timeout", "1h", "-o", "json", "--bootstrap", controller.url]
        assert cli.main(words) == 0
        assert not any(seen.method == "POST" for seen in controller.seen)
    value = json.loads(capsys.readouterr().out)
    assert [(one["level"], one["possible"], one["held_back_by"]) for one in value["features"]] == [
        (1, None, "no controller leads")
    ]
    assert value["next"] == "whether a level can be raised is not known: no controller leads"


@pytest.mark.parametrize(
    ("refused_above", "said"),
    [
        (3, f"then {OURS} is raised from 1 to 3: an older release cannot follow from then on"),
        (2, f"then {OURS} stays at 1, as the nodes are now: "),
    ],
)
def test_a_dry_run_of_a_roll_says_what_is_finalized_then(
    refused_above: int, said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    image = a_cluster([None]).image
    monkeypatch.setattr(live_state, "live_image", lambda _: image)
    monkeypatch.setattr(live_state, "live_options", lambda _: Options())
    with node() as controller:
        controller.answer = lambda seen: told(seen, refused_above=refused_above)
        assert cli.main(["roll", "all", "--dry-run", "--finalize", "--bootstrap", controller.url]) in (0, 10)
    assert said in capsys.readouterr().out


@pytest.mark.parametrize(
    ("versions", "level", "says"),
    [
        (
            ("1.0", "1.1"),
            Level(OURS, 1, 1, 3, None),
            "2 releases run (1.0, 1.1): restart node 0 with one release",
        ),
        (("1.1", None), Level(OURS, 3, 3, 3, None), "nothing: metaquorum.version is 3, the newest level"),
        (("1.1",), Level(OURS, 1, 1, 3, "broker 12 supports 1 to 1"), "stays at 1: broker 12 supports"),
        (("1.1",), Level(OURS, 1, None, 3, "no right"), "is not known: it takes the right to alter"),
    ],
)
def test_what_comes_next_is_said(versions: tuple[str | None, ...], level: Level, says: str) -> None:
    found = [{"node": f"node {place}", "version": version} for place, version in enumerate(versions)]
    assert says in next_step(found, [level])


@pytest.mark.parametrize(
    ("possible", "says"),
    [
        (30, "metaquorum features upgrade metadata.version=30"),
        (23, f"nothing: {OURS} is 5"),
        (None, f"nothing: {OURS} is 5"),
    ],
)
def test_the_level_of_kafkas_metadata_comes_after_our_own(possible: int | None, says: str) -> None:
    found = [{"node": "controller 1", "version": "1.1"}]
    ours, kafkas = Level(OURS, 5, 5, 5, None), Level("metadata.version", 23, possible, 30, None)
    assert says in next_step(found, [kafkas, ours])


def test_features_that_a_cluster_of_an_earlier_release_lacks_are_named() -> None:
    found = [{"node": "controller 1", "version": "1.1"}]
    others = [
        Level("group.version", 0, 1, 1, None),
        Level("share.version", 0, 0, 1, "broker 11 supports 0 to 0"),
    ]
    step = next_step(found, [Level(OURS, 5, 5, 5, None), *others])
    assert step.endswith(
        "the newest level of this release; metaquorum features upgrade can also raise group.version=1"
    )


def test_the_version_stands_in_one_place_and_the_change_log_has_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"metaquorum {VERSION}\n"
    assert f"## [{VERSION}]" in (ROOT / "CHANGELOG.md").read_text()
    assert VERSION not in (ROOT / "pyproject.toml").read_text()
