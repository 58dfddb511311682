"""Edge: the pinned Go modules name the versions under which binaries are stored and reported."""

from pathlib import Path

import pytest

from ops import toolchain


@pytest.mark.parametrize("tool", [toolchain._ETCD, toolchain._TOXIPROXY], ids=lambda tool: tool.name)
def test_the_module_requires_the_version_its_binary_is_named_after(tool: toolchain._Tool) -> None:
    module = Path(toolchain.__file__).parent / tool.module
    path, _, _ = tool.package.partition("/cmd/")
    assert f"require {path} v{tool.version}\n" in (module / "go.mod").read_text()
    assert f"{path} v{tool.version} h1:" in (module / "go.sum").read_text(), "its checksum is pinned"
    assert f'import _ "{tool.package}"' in (module / "tools.go").read_text(), "go mod tidy keeps it"


def test_without_go_the_message_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(toolchain, "tools_directory", lambda: tmp_path)
    with pytest.raises(toolchain.ToolMissing, match=r"install Go 1\.24"):
        toolchain.toxiproxy_binary()
    with pytest.raises(toolchain.ToolMissing, match=r"install Go 1\.26"):
        toolchain.etcd_binary()


def test_a_failed_build_is_named_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go = tmp_path / "bin" / "go"
    go.parent.mkdir()
    go.write_text("#!/bin/sh\nexit 1\n")
    go.chmod(0o755)
    tools = tmp_path / "tools"
    monkeypatch.setenv("PATH", str(go.parent))
    monkeypatch.setattr(toolchain, "tools_directory", lambda: tools)
    with pytest.raises(toolchain.ToolMissing, match=r"cannot build toxiproxy-server 2\.5\.0"):
        toolchain.toxiproxy_binary()
    assert list(tools.iterdir()) == []


def test_of_a_checkout_the_tools_stay_inside(tmp_path: Path) -> None:
    assert toolchain.tools_directory() == Path(__file__).resolve().parents[3] / ".tools"
