"""Edge: `ops/setup.sh`: what an interrupted start left is completed by the next one."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.mark.slow
def test_an_environment_whose_making_was_cut_short_is_completed(tmp_path: Path) -> None:
    """Method: as it is before pip is in there; instead of a gigabyte pip's own version is asked for."""
    (tmp_path / "ops").mkdir()
    shutil.copy(ROOT / "ops" / "setup.sh", tmp_path / "ops")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / ".venv"], check=True)
    script = """
        set -euo pipefail
        source ops/setup.sh
        pip_install() { "$VENV/bin/python" -m pip --version; }
        install replay
    """
    ran = subprocess.run(["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout[:4]) == (0, "pip "), ran.stderr
    assert (tmp_path / ".venv" / ".installed-replay").exists()
