"""Edge: how a roll restarts a node: a command of the operator's, and the process of a local cluster."""

import sys
from pathlib import Path

import pytest

from ops import cli
from ops.admin import live_state
from ops.admin.roll_plan import Node
from ops.admin.rolling import NotBack, UnsafeStep
from ops.local.cluster import LocalCluster
from ops.node_commands import words_for
from ops.verbs.roll import _commanded
from tests.support.decisions import word_uuid
from tests.support.placements import a_cluster

AT = ("--bootstrap", "http://127.0.0.1:1")
BROKER = Node("broker", 11, "host;reboot", word_uuid("b"), 5)


def test_a_command_names_the_node_and_no_shell_reads_it(tmp_path: Path) -> None:
    words = ["systemctl", "-H", "{host}", "restart", "metaquorum-{role}@{id}"]
    places = {"id": 11, "role": "broker", "host": "{id}"}
    assert words_for(words, places) == ["systemctl", "-H", "{id}", "restart", "metaquorum-broker@11"]
    file = tmp_path / "said"
    script = f"import sys; open({str(file)!r}, 'w').write(repr(sys.argv[1:]))"
    _commanded([sys.executable, "-c", script, "{role}-{id}", "{host}"], 60.0)(BROKER)
    assert file.read_text() == "['broker-11', 'host;reboot']"


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("import sys; sys.exit('no such unit')", "broker 11: .* ended with 1: no such unit"),
        ("import time; time.sleep(60)", "timed out"),
    ],
)
def test_a_command_that_fails_stops_the_roll(script: str, why: str) -> None:
    patience_s = 0.5 if "sleep" in script else 60.0
    with pytest.raises(NotBack, match=why):
        _commanded([sys.executable, "-c", script], patience_s)(BROKER)


@pytest.mark.parametrize("host", ["-oProxyCommand=reboot", "a b", ""])
def test_no_command_runs_for_what_is_no_host(host: str, tmp_path: Path) -> None:
    """Goal: a broker, which registers what it likes, gives no option to the command. Method: the command leaves a file."""
    file = tmp_path / "ran"
    command = [sys.executable, "-c", f"open({str(file)!r}, 'w')", "{host}"]
    with pytest.raises(UnsafeStep, match="which is no name of a host"):
        _commanded(command, 60.0)(BROKER._replace(host=host))
    assert not file.exists()


@pytest.mark.parametrize(
    ("words", "code", "why"),
    [
        (["brokers", "--restart", "restart {name}"], 2, "{name} is none of {id}, {role}, {host}"),
        (["brokers", "--restart", ""], 2, "the empty text is no value"),
        (["brokers", "--yes"], 2, "say how a node is restarted"),
        (["all", "--restart", "true"], 2, "give --yes"),
        (["all", "--local", "."], 2, ". is no folder of `metaquorum up`: it has no cluster.json"),
        (
            ["all", "--restart", "true", "--yes", "--since", "100000"],
            2,
            "no roll of this cluster began there",
        ),
    ],
)
def test_what_says_no_way_to_restart_is_refused(
    words: list[str], code: int, why: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    image = a_cluster([None]).image
    monkeypatch.setattr(live_state, "live_image", lambda _: image)
    assert cli.main(["roll", *words, *AT]) == code
    assert why in capsys.readouterr().err


def test_the_nodes_of_another_cluster_are_not_restarted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    image = a_cluster([None]).image
    monkeypatch.setattr(live_state, "live_image", lambda _: image)
    LocalCluster(tmp_path, controllers=1, brokers=0).prepare()
    assert cli.main(["roll", "all", "--local", str(tmp_path), "--yes", *AT]) == 2
    assert f"and the cluster that is asked is {image.quorum.cluster_id}" in capsys.readouterr().err
