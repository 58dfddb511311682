"""E: a controller's process, as far as it goes without a quorum."""

import asyncio
import random
from pathlib import Path

import pytest

from metadata_log.data_directory import DirectoryLock, format_directory, load_meta, read_process_json
from metadata_log.errors import CannotListen, DirectoryInUse
from metadata_log.ids import NodeId
from quorum.config import ControllerSettings, VoterSettings
from quorum.server import run_controller
from tests.support.processes import free_port


def settings_for(data_dir: Path, raft: tuple[str, int]) -> ControllerSettings:
    node_id, cluster_id = NodeId(1), "A" * 22
    format_directory(
        data_dir, role="controller", node_id=node_id, cluster_id=cluster_id, rng=random.Random(1)
    )
    http = ("127.0.0.1", free_port())
    url = f"http://{http[0]}:{http[1]}"
    voter = VoterSettings(id=node_id, raft=raft, http=url, directory_id=load_meta(data_dir).directory_id)
    return ControllerSettings(
        cluster_id=cluster_id,
        node_id=node_id,
        data_dir=data_dir,
        listen_http=http,
        listen_raft=raft,
        voters=(voter,),
    )


def test_a_refused_controller_leaves_no_process_json_but_that_of_another(tmp_path: Path) -> None:
    async def scenario() -> None:
        taken = await asyncio.start_server(lambda _reader, _writer: None, "127.0.0.1", 0)
        async with taken:
            settings = settings_for(tmp_path, taken.sockets[0].getsockname())
            file = tmp_path / "process.json"
            file.write_text('{"pid": 1}')
            with DirectoryLock(tmp_path), pytest.raises(DirectoryInUse):
                await run_controller(settings)
            assert read_process_json(tmp_path) == {"pid": 1}
            with pytest.raises(CannotListen):
                await run_controller(settings)
            assert not file.exists()

    asyncio.run(scenario())
