"""Edge: `move controller|broker`: what is named, what lacks, and what is refused without a cluster."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ops import cli
from ops.admin.cluster import Endpoint
from ops.admin.moving import Move, Moving
from ops.admin.rolling import Rolling, UnsafeStep


def endpoint(name: str, port: int) -> Endpoint:
    return {"name": name, "host": "h", "port": port, "security_protocol": 0}


def test_a_registration_lacks_what_is_named_otherwise() -> None:
    move = Move(role="controller", id=3, http="http://h:2", raft=("h", 1))
    assert move.lacking([endpoint("CONTROLLER", 1), endpoint("HTTP", 9)]) == {"HTTP": ("h", 2)}
    assert move.lacking([endpoint("CONTROLLER", 1), endpoint("HTTP", 2)]) == {}
    broker = Move(role="broker", id=11, http="http://h:2")
    assert broker.lacking([endpoint("PLAINTEXT", 2), endpoint("OTHER", 9)]) == {}
    assert broker.lacking([endpoint("PLAINTEXT", 9), endpoint("HTTP", 2)]) == {"HTTP": ("h", 2)}


def moving(
    accepted: frozenset[str] = frozenset(), *, host: str = "h.invalid", kraft_version: int = 1
) -> Moving:
    rows = [{"controller_id": 3, "endpoints": [endpoint("CONTROLLER", 1), endpoint("HTTP", 9)]}]
    levels = [{"feature": "kraft.version", "level": kraft_version}]
    client: Any = SimpleNamespace(controllers=lambda: rows, brokers=list, items=lambda _: levels)
    rolling = Rolling(client=client, restart=lambda _: None, patience_s=1, accepted=accepted)
    return Moving(rolling=rolling, move=Move(role="controller", id=3, raft=(host, 1)))


def test_a_move_says_from_where_to_where_and_refuses_a_name_that_nobody_knows() -> None:
    """RFC 2606: no host has a name that ends in .invalid."""
    assert [*moving().changes()] == ["CONTROLLER: h:1 becomes h.invalid:1"]
    assert moving().present() == {"CONTROLLER": ("h", 1)}
    with pytest.raises(UnsafeStep, match=r"h\.invalid is not known here.*--accept NAME_UNKNOWN"):
        moving().check()
    moving(frozenset({"NAME_UNKNOWN"})).check()


def test_a_voter_is_not_moved_where_the_settings_say_who_votes() -> None:
    accepted = frozenset({"NAME_UNKNOWN"})
    static = moving(accepted, kraft_version=0)
    for place in ({"raft": ("h.invalid", 1)}, {"kafka": ("h.invalid", 1)}):
        move = Move(role="controller", id=3, **place)  # type: ignore[arg-type]  # one of its fields
        with pytest.raises(UnsafeStep, match=r"metaquorum features upgrade kraft\.version=1"):
            replace(static, move=move).run()
    replace(static, move=Move(role="controller", id=3, http="http://h.invalid:2")).check()


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["controller", "--id", "3"], "name at least one new address"),
        (["controller", "--id", "3", "--raft", "0.0.0.0:1"], "that others can reach"),
        (["controller", "--id", "3", "--http", "h:1"], "no http://HOST:PORT"),
        (["broker", "--id", "11", "--raft", "h:1"], "unrecognized"),
        (["controller", "--id", "3", "--raft", "h:1", "--restart", "x {y}"], "{y} is none of"),
    ],
)
def test_what_is_wrong_is_refused(
    words: list[str],
    why: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["move", *words]) == 2
    assert why in capsys.readouterr().err
