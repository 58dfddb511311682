"""Edge: `storage format` and `storage info`."""

import json
from pathlib import Path

import pytest
from cryptography import x509

from metadata_log.node.disk.data_directory import load_meta, not_fresh_any_more, only_joins
from ops import cli
from quorum.node.bootstrap import read_bootstrap

CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"


def settings(tmp_path: Path, *, with_cluster_id: bool = True, role: str = "node") -> Path:
    """Write what format needs: a file that does not know its directory id yet."""
    file = tmp_path / "node.toml"
    cluster = f'cluster_id = "{CLUSTER_ID}"\n' if with_cluster_id else ""
    file.write_text(f'{cluster}{role}_id = 1\ndata_dir = "data"\n')
    return file


def test_format_then_info(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """B93"""
    file = settings(tmp_path)
    assert cli.main(["storage", "format", "--config", str(file), "--json"]) == 0
    said = capsys.readouterr()
    made = json.loads(said.out)
    assert list(made) == ["role", "id", "cluster_id", "directory_id", "data_dir"]
    assert f'directory_id = "{made["directory_id"]}"' in said.err
    for words in (["--config", str(file)], [str(tmp_path / "data")]):
        assert cli.main(["storage", "info", *words, "--json"]) == 0
        info = json.loads(capsys.readouterr().out)
        assert {key: info[key] for key in made} == made
        assert info["running"] is False


def test_a_controller_that_joins_a_cluster_is_told_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = settings(tmp_path)
    assert cli.main(["storage", "format", "--config", str(file), "--no-initial-controllers"]) == 0
    said = capsys.readouterr().err
    assert "a new cluster" not in said
    assert "quorum add-voter" in said
    assert only_joins(tmp_path / "data")
    broker = settings(tmp_path, role="broker")
    assert cli.main(["storage", "format", "--config", str(broker), "--no-initial-controllers"]) == 2
    assert "is for controllers" in capsys.readouterr().err


def test_the_settings_may_lie_in_the_directory_itself(tmp_path: Path) -> None:
    file = settings(tmp_path)
    file.write_text(file.read_text().replace('"data"', '"."'))
    assert cli.main(["storage", "format", "--config", str(file)]) == 0
    assert load_meta(tmp_path).node_id == 1


def test_nothing_is_formatted_twice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """B93"""
    file = settings(tmp_path, role="broker")
    assert cli.main(["storage", "format", "--config", str(file)]) == 0
    assert cli.main(["storage", "format", "--config", str(file)]) == 6
    assert "already formatted for broker 1" in capsys.readouterr().err


def test_a_directory_that_is_formatted_for_the_node_is_no_error_where_that_is_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["storage", "format", "--ignore-formatted", "-o", "json", "--config"]
    assert cli.main([*words, str(settings(tmp_path))]) == 0
    first = json.loads(capsys.readouterr().out)
    assert cli.main([*words, str(settings(tmp_path))]) == 0
    again = capsys.readouterr()
    assert json.loads(again.out) == first and "left as it is" in again.err
    assert cli.main([*words, str(settings(tmp_path, role="broker"))]) == 6, "another node's"


def test_what_a_formatted_directory_is_for_is_not_ignored(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Goal: no script that asks for a controller that only joins gets one that founds a second quorum, nor the reverse."""
    line = ["storage", "format", "--config", str(settings(tmp_path)), "--ignore-formatted"]
    joining = [*line, "--no-initial-controllers"]
    assert cli.main(line) == 0
    assert cli.main([*line, "--feature", "group.version=0"]) == 0
    assert "--add-scram changed nothing" in capsys.readouterr().err
    data = tmp_path / "data"
    assert cli.main(joining) == 6
    assert "was formatted without --no-initial-controllers" in capsys.readouterr().err
    not_fresh_any_more(data)
    assert cli.main(joining) == 0, "its log says who votes"
    for path in (data / "meta.json", data / "fresh"):
        path.unlink(missing_ok=True)
    assert cli.main(joining) == 0, "of an interrupted format"
    assert cli.main(joining) == 0
    assert cli.main(line) == 6
    assert "was formatted with --no-initial-controllers" in capsys.readouterr().err


def test_the_cluster_is_named_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = settings(tmp_path, with_cluster_id=False)
    assert cli.main(["storage", "format", "--config", str(file)]) == 2
    assert "for a new cluster take " in capsys.readouterr().err
    assert cli.main(["storage", "format", "--config", str(file), "--cluster-id", "short"]) == 2
    assert cli.main(["storage", "format", "--config", str(file), "--cluster-id", CLUSTER_ID]) == 0
    other = settings(tmp_path)
    assert cli.main(["storage", "format", "--config", str(other), "--cluster-id", "A" * 22]) == 2
    assert f"says {CLUSTER_ID}" in capsys.readouterr().err


def test_a_log_that_cannot_be_written_is_named_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = settings(tmp_path, role="broker")
    file.write_text(
        file.read_text()
        + 'insecure = true\ncontrollers = ["http://127.0.0.1:1"]\n[listen]\nhttp = "http://127.0.0.1:2"\n'
    )
    assert cli.main(["storage", "format", "--config", str(file)]) == 0
    data = Path(json.loads(_info(capsys, file))["data_dir"])
    (data / "broker.log").mkdir()
    assert cli.main(["broker", "run", "--config", str(file)]) == 6
    (said,) = capsys.readouterr().err.splitlines()
    assert said.startswith("metaquorum: DiskFailed: ")
    assert "broker.log: Is a directory: " in said


def _info(capsys: pytest.CaptureFixture[str], file: Path) -> str:
    capsys.readouterr()
    assert cli.main(["storage", "info", "--config", str(file), "--json"]) == 0
    return capsys.readouterr().out


def test_a_process_refuses_what_is_not_formatted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = settings(tmp_path, role="broker")
    file.write_text(
        file.read_text()
        + 'insecure = true\ncontrollers = ["http://127.0.0.1:1"]\n[listen]\nhttp = "http://127.0.0.1:2"\n'
    )
    assert cli.main(["broker", "run", "--config", str(file)]) == 6
    said = capsys.readouterr().err
    assert "is not formatted" in said
    assert said.count("\n") == 1
    assert not (tmp_path / "data").exists()
    assert cli.main(["storage", "info", str(tmp_path)]) == 6
    assert "Traceback" not in capsys.readouterr().err


def test_what_is_not_formatted_is_told_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for directory in (tmp_path, tmp_path / "none"):
        assert cli.main(["storage", "info", str(directory)]) == 6
        assert f"{directory}: is not formatted: run `metaquorum storage format" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("role", "lines", "names", "addresses"),
    [
        ("node", "", [], []),
        (
            "node",
            (
                '[listen]\nhttp = "https://0.0.0.0:9091"\nraft = "10.0.0.7:9191"\n'
                '[http]\nallowed_hosts = ["quorum.example"]\n'
                '[[voters]]\nid = 2\nraft = "two.example:9191"\nhttp = "https://two.example:9091"\n'
                '[[voters]]\nid = 1\nraft = "one-raft.example:9191"\nhttp = "https://ONE.example:9091"\n'
            ),
            ["one.example", "one-raft.example", "quorum.example"],
            ["10.0.0.7"],
        ),
        (
            "node",
            '[advertised]\nhttp = "http://seven.example:1"\nraft = "[fd00::7]:2"\n',
            ["seven.example"],
            ["fd00::7"],
        ),
        (
            "broker",
            '[listen]\nhttp = "http://[::]:9101"\n[advertised]\nhttp = "http://b\u00fccher.example:1"\n',
            ["xn--bcher-kva.example"],
            [],
        ),
    ],
)
def test_a_certificate_names_the_hosts_at_which_its_node_is_dialled(
    tmp_path: Path, role: str, lines: str, names: list[str], addresses: list[str]
) -> None:
    file = settings(tmp_path, role=role)
    file.write_text(file.read_text() + lines)
    assert cli.main(["storage", "format", "--config", str(file), "--secure"]) == 0
    stem = "controller-1" if role == "node" else "broker-1"
    certificate = x509.load_pem_x509_certificate((tmp_path / "tls" / f"{stem}.crt").read_bytes())
    named = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert sorted(named.get_values_for_type(x509.DNSName)) == sorted(["localhost", *names])
    assert sorted(map(str, named.get_values_for_type(x509.IPAddress))) == sorted(
        ["127.0.0.1", "::1", *addresses]
    )


def test_nothing_is_made_for_a_host_that_cannot_be_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = settings(tmp_path)
    file.write_text(f'{file.read_text()}[advertised]\nhttp = "one.example"\n')
    assert cli.main(["storage", "format", "--config", str(file), "--secure"]) != 0
    assert "advertised.http = 'one.example': wanted" in capsys.readouterr().err
    assert not (tmp_path / "data").exists()
    assert not (tmp_path / "tls").exists()


def test_a_cluster_is_founded_as_format_was_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """B77, B85: levels and users of the founding lie in the directory, and no password does."""
    file = settings(tmp_path)
    chosen = ["--release-version", "4.1", "--feature", "kraft.version=0"]
    user = ["--add-scram", "SCRAM-SHA-256=[name=alice,password=alice-secret]"]
    assert cli.main(["storage", "format", "--config", str(file), *chosen, *user]) == 0
    founding = read_bootstrap(tmp_path / "data")
    assert founding is not None
    assert (founding.metadata_version, founding.kraft_version) == (27, 0)
    eligible = ("eligible.leader.replicas.version", 1)
    assert founding.levels == (eligible, ("group.version", 1), ("transaction.version", 2))
    assert [each.name for each in founding.credentials] == ["alice"]
    assert b"alice-secret" not in (tmp_path / "data" / "bootstrap.json").read_bytes()
    said = "".join(capsys.readouterr())
    assert "alice-secret" not in said and "with the same options" in said


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (
            ["--release-version", "9.9"],
            "Unknown metadata.version '9.9'. Supported metadata.version are: 3.3-IV3, ",
        ),
        (
            ["--feature", "group.version"],
            "Can't parse feature=level string group.version: equals sign not found.",
        ),
        (["--feature", "foo=1"], "Unsupported feature: foo. Supported features are: "),
        (["--feature", "metadata.version=31"], "metadata.version 4.4-IV0 is not yet stable"),
        (
            ["--add-scram", "SCRAM-SHA-1=[name=a,password=p-w]"],
            "The add-scram mechanism SCRAM-SHA-1 is not supported.",
        ),
        (
            ["--no-initial-controllers", "--release-version", "4.1"],
            "are for controllers that found a cluster",
        ),
    ],
)
def test_what_no_cluster_begins_with_is_refused_before_anything_is_made(
    given: list[str], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["storage", "format", "--config", str(settings(tmp_path)), *given]) == 2
    said = capsys.readouterr().err
    assert told in said and "p-w" not in said
    assert not (tmp_path / "data").exists()


def test_settings_say_what_the_options_do_not(tmp_path: Path) -> None:
    file = settings(tmp_path)
    levels = '[listen]\nkafka = "127.0.0.1:9292"\n[features]\nfounding_metadata_version = "4.0"\n'
    file.write_text(file.read_text() + levels)
    assert cli.main(["storage", "format", "--config", str(file), "--feature", "group.version=0"]) == 0
    founding = read_bootstrap(tmp_path / "data")
    assert founding is not None and founding.metadata_version == 25
    assert founding.levels == (("transaction.version", 2),)
