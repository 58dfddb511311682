"""Edge: a container's health check: a node that answers, one that does not, and no node."""

import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from metadata_log.ids import Uuid
from metadata_log.node.disk.data_directory import DirectoryLock, write_process_json
from ops import healthcheck

WELL = 200


class _Node(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(WELL if self.path == "/healthz" else 404)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def url() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), _Node) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def running(data: Path, http: str | None) -> None:
    write_process_json(
        data,
        role="controller",
        node_id=1,
        pid=os.getpid(),
        incarnation_id=Uuid(bytes(16)),
        http=http,
        raft=None,
        started_at_ms=0,
        log="",
    )


def test_a_node_that_answers_is_well(tmp_path: Path, url: str) -> None:
    with DirectoryLock(tmp_path):
        running(tmp_path, url)
        assert healthcheck.main([str(tmp_path)]) == 0


@pytest.mark.parametrize(
    ("http", "said"),
    [
        (None, "does not listen"),
        ("http://127.0.0.1:1", "refused"),
        ("https://127.0.0.1:1", "refused"),
        ("wrong", "404"),
    ],
)
def test_one_that_does_not_is_named(
    tmp_path: Path, url: str, http: str | None, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with DirectoryLock(tmp_path):
        running(tmp_path, f"{url}/other" if http == "wrong" else http)
        assert healthcheck.main([str(tmp_path)]) == 1
    assert said in capsys.readouterr().err


def test_where_no_process_runs_nobody_is_asked(tmp_path: Path, url: str) -> None:
    """Goal: what a killed process left is no node."""
    running(tmp_path, url)
    assert healthcheck.fault_of(tmp_path) == f"{tmp_path}: no process runs here"
