"""Edge: snapshots are read again every day, and a stopping controller does not wait for a slow one."""

import asyncio
import gc
import hashlib
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import NoReturn, cast

import pytest

from metadata_log.errors import DamagedFile, DiskFailed, LogDamaged, ThrottlingQuotaExceeded
from metadata_log.ids import SnapshotId
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.limits import SNAPSHOT_DOWNLOADS_MAX, SNAPSHOT_ENTRIES
from quorum.controller.controller import Controller
from quorum.log import snapshot_keeper
from quorum.log.snapshot_keeper import QUIET_FRAMES, SnapshotKeeper
from quorum.raft.raft_log import RaftPosition, RaftStatus
from snapshots.seal import Seal
from snapshots.snapshot_file import snapshot_frames, write_snapshot
from tests.support.desk import Desk
from tests.support.lab import Lab, run, setting, spin


async def test_who_stops_rests_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rests: list[Callable[[float], object]] = []

    def written(_image: MetadataImage, _directory: Path, *, rest: Callable[[float], object]) -> Path:
        rests.append(rest)
        raise DiskFailed("full")

    monkeypatch.setattr(snapshot_keeper, "write_snapshot", written)
    lab = Lab()
    desk = Desk(lab, tmp_path)
    lab.lead(1)
    running = asyncio.create_task(desk.keeper.run())
    await asyncio.sleep(0)
    with pytest.raises(ThrottlingQuotaExceeded, match="full"):
        await desk.keeper.take()
    began = time.monotonic()
    rests[0](0.01)
    assert time.monotonic() - began >= 0.01
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    rests[0](3_600.0)  # which returns at once


def bytes_of(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


async def test_one_that_rots_at_rest_is_found_every_day_and_another_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody asks for it; the state has not changed meanwhile, so that the other has its id, and its bytes when sound."""
    for wait in ("SCRUB_EVERY_S", "RETRY_S"):
        monkeypatch.setattr(snapshot_keeper, wait, 0.001)
    lab = Lab()
    desk, loop = Desk(lab, tmp_path), asyncio.get_running_loop()

    def on_damage(_id: SnapshotId, _error: DamagedFile) -> None:
        loop.call_soon_threadsafe(desk.keeper.lost)

    desk.store.on_damage = on_damage
    lab.lead(1)
    path = desk.store.path((await desk.keeper.take()).id)
    sound = path.read_bytes()
    tasks = [asyncio.create_task(desk.keeper.run()), asyncio.create_task(desk.keeper.scrub())]
    async with asyncio.timeout(60):
        for day in (1, 2):
            rotten = bytearray(sound)
            rotten[-day] ^= 1
            path.write_bytes(rotten)
            while bytes_of(path) != sound:
                await asyncio.sleep(0.001)
            found = {kept.read_bytes() for kept in (tmp_path / "quarantine").iterdir()}
            assert len(found) == day
            assert bytes(rotten) in found
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_one_that_rotted_is_written_again_before_its_seal_is_announced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: the seal is that of sound bytes: a node that needs the snapshot refuses all others."""
    lab = Lab()
    desk = Desk(lab, tmp_path)
    lab.lead(1)
    offer = await desk.keeper.take()
    path = desk.store.path(offer.id)
    sound = path.read_bytes()
    path.write_bytes(sound[:-1] + bytes((sound[-1] ^ 1,)))
    # As in another process: nothing is remembered of the file.
    desk.store._sha256.clear()
    seals: list[bytes] = []
    raft = desk.keeper._controller.raft
    monkeypatch.setattr(raft, "compact", lambda _position, _name, seal: seals.append(seal))
    await desk.keeper.take()
    assert seals == [Seal(desk.keeper._controller.committed.last_crc, offer.sha256).to_bytes()]
    assert path.read_bytes() == sound


@pytest.mark.parametrize("other", ["history", "cluster"])
async def test_a_foreign_one_under_its_id_is_set_aside_before_the_seal_is_announced(
    other: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: the seal is that of this log: with the hash of a foreign file in it no other controller's file would fit."""
    lab = Lab()
    desk = Desk(lab, tmp_path)
    lab.lead(1)
    image = desk.keeper._controller.committed
    foreign = (
        replace(image, last_crc=image.last_crc ^ 1)
        if other == "history"
        else replace(image, quorum=image.quorum._replace(cluster_id="F" * 22))
    )
    path = write_snapshot(foreign, desk.store.directory)
    content = path.read_bytes()
    known = image.controller_epoch, image.last_crc
    monkeypatch.setattr(desk.keeper._log, "position_before", lambda _offset: known)
    assert desk.keeper.newest() is None, "nor is it offered to brokers before that"
    seals: list[bytes] = []
    raft = desk.keeper._controller.raft
    monkeypatch.setattr(raft, "compact", lambda _position, _name, seal: seals.append(seal))
    offer = await desk.keeper.take()
    sound = b"".join(snapshot_frames(image))
    assert path.read_bytes() == sound != content
    assert seals == [Seal(image.last_crc, hashlib.sha256(sound).hexdigest()).to_bytes()]
    assert offer.sha256 == hashlib.sha256(sound).hexdigest()
    assert [kept.read_bytes() for kept in (tmp_path / "quarantine").iterdir()] == [content]


async def test_a_log_that_grows_without_records_is_trimmed_behind_the_same_snapshot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot_keeper, "COUNT_EVERY_S", 0.001)
    lab = Lab()
    desk = Desk(lab, tmp_path)
    lab.lead(1)
    offer = await desk.keeper.take()
    raft = desk.keeper._controller.raft
    trimmed: list[tuple[RaftPosition, str]] = []
    monkeypatch.setattr(raft, "compact", lambda position, name, _seal: trimmed.append((position, name)))
    status, entries, counted = raft.status(), SNAPSHOT_ENTRIES - 1, 0

    def counts() -> RaftStatus:
        nonlocal counted
        counted += 1
        return replace(status, entries_untrimmed=entries)

    async def has_counted_again() -> None:
        seen = counted
        async with asyncio.timeout(60):
            while counted < seen + 5:
                await asyncio.sleep(0.001)

    monkeypatch.setattr(raft, "status", counts)
    tasks = [asyncio.create_task(desk.keeper.run()), asyncio.create_task(desk.keeper.count())]
    await has_counted_again()
    assert trimmed == []
    # While records come the policy decides, alike on all nodes.
    controller = desk.keeper._controller
    quiet = controller.committed
    writing = asyncio.create_task(_writes_on(controller))
    await has_counted_again()
    entries += 1
    await has_counted_again()
    assert trimmed == []
    writing.cancel()
    controller.committed = quiet
    async with asyncio.timeout(60):
        while not trimmed:
            await asyncio.sleep(0.001)
    assert trimmed[0] == (raft.applied_position(), offer.id)
    for task in tasks:
        task.cancel()


async def _writes_on(controller: Controller) -> None:
    """Let the log be longer at each turn of the loop."""
    while True:
        image = controller.committed
        controller.committed = replace(image, end_offset=image.end_offset + 1)
        await asyncio.sleep(0)


async def test_only_so_many_downloads_are_under_way(tmp_path: Path) -> None:
    lab = Lab()
    keeper = Desk(lab, tmp_path).keeper
    with ExitStack() as stack:
        for number in range(SNAPSHOT_DOWNLOADS_MAX):
            stack.enter_context(keeper.downloading(f"snapshot {number % 2}"))
        with pytest.raises(ThrottlingQuotaExceeded, match=r"downloads are under way"):
            stack.enter_context(keeper.downloading("another"))
    with keeper.downloading("another"):
        pass


async def test_one_whose_end_the_log_says_nothing_of_is_offered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def damaged(_offset: int) -> NoReturn:
        raise LogDamaged("a segment is rotten")

    lab = Lab()
    desk = Desk(lab, tmp_path)
    controller = lab.lead(1)
    offer = await desk.keeper.take()
    await lab.write(controller, setting("1"))
    log = desk.keeper._log
    log.on_restored(controller.committed)
    assert log.log_start_offset > offer.end_offset
    assert desk.keeper.offers() == [offer]
    monkeypatch.setattr(log, "position_before", damaged)
    assert desk.keeper.offers() == [offer]
    desk.store.path(offer.id).write_bytes(b"nothing of it")
    assert desk.keeper.offers() == []


async def test_one_that_ends_inside_a_batch_of_the_log_is_not_offered(tmp_path: Path) -> None:
    lab = Lab()
    desk = Desk(lab, tmp_path)
    log = desk.keeper._log
    desk.controller.attach(desk.controller.raft, [log])
    image = lab.lead(1).committed
    assert log.end_offset == image.end_offset
    foreign = write_snapshot(replace(image, end_offset=image.end_offset - 1), desk.store.directory)
    assert desk.keeper.offers() == []
    foreign.unlink()
    offer = await desk.keeper.take()
    assert desk.keeper.offers() == [offer]


async def test_one_that_is_set_aside_before_it_is_announced_stops_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def found_rotten_at_once(
        image: MetadataImage, directory: Path, **rests: Callable[[float], object]
    ) -> Path:
        path = write_snapshot(image, directory, **rests)
        path.unlink()
        return path

    lab = Lab()
    desk = Desk(lab, tmp_path)
    lab.lead(1)
    with monkeypatch.context() as rotting:
        rotting.setattr(snapshot_keeper, "write_snapshot", found_rotten_at_once)
        with pytest.raises(ThrottlingQuotaExceeded, match=r"no snapshot .* here"):
            await desk.keeper.take()
    offer = await desk.keeper.take()
    monkeypatch.setattr(desk.store, "ids", lambda: ["00000000000000000001-0000000001", offer.id])
    assert desk.keeper.offers() == [offer], "nor one that is set aside while they are listed"


async def test_downloads_that_begin_together_share_a_check_and_a_later_one_has_its_own(
    tmp_path: Path,
) -> None:
    """Goal: a thousand brokers cost one reading, and none gets bytes that rotted before it asked."""
    lab = Lab()
    keeper = Desk(lab, tmp_path).keeper
    outcomes: list[asyncio.Future[None]] = []

    async def check(_work: object, _name: str) -> None:
        outcomes.append(asyncio.get_running_loop().create_future())
        await outcomes[-1]

    together = [asyncio.create_task(keeper.check("a", check)) for _ in range(3)]
    await spin()
    (first,) = outcomes
    first.set_exception(DamagedFile("rotted"))
    await spin()
    assert len(outcomes) == 2, "what one found damaged, the next looks at for itself"
    together[1].cancel()
    await spin()
    outcomes[-1].set_result(None)
    results = await asyncio.gather(*together, return_exceptions=True)
    assert [type(each) for each in results].count(DamagedFile) == 1
    assert any(each is None for each in results)
    later = asyncio.create_task(keeper.check("a", check))
    await spin()
    outcomes[-1].set_result(None)
    await later
    assert len(outcomes) >= 3


def test_the_image_is_let_go_once_its_snapshot_is_taken(tmp_path: Path) -> None:
    """Else all that was evicted from it since would be freed at once when the next one is due."""

    others = {id(each) for each in gc.get_objects() if isinstance(each, MetadataImage)}

    def alive(end_offset: int) -> int:
        gc.collect()
        return sum(
            isinstance(each, MetadataImage) and id(each) not in others and each.end_offset == end_offset
            for each in gc.get_objects()
        )

    async def story(lab: Lab) -> None:
        desk = Desk(lab, tmp_path)
        controller = lab.lead(1)
        running = asyncio.create_task(desk.keeper.run())
        end_offset = controller.committed.end_offset
        desk.keeper.lost()
        async with asyncio.timeout(60):
            while desk.keeper.newest() is None:
                await asyncio.sleep(0.001)
        assert alive(end_offset)
        await lab.write(controller, setting("1"))
        for each in lab.controllers.values():
            assert each.committed.digest_buckets  # what was not counted is kept
        async with asyncio.timeout(60):  # a thread may still have to do with the snapshot
            while alive(end_offset):
                await asyncio.sleep(0.01)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    run(story)


def test_the_writer_of_a_snapshot_rests_while_the_log_grows() -> None:
    rested: list[float] = []
    committed = SimpleNamespace(end_offset=5)
    keeper = SimpleNamespace(
        _controller=SimpleNamespace(committed=committed), _stopping=SimpleNamespace(wait=rested.append)
    )
    rest = SnapshotKeeper._resting(cast("SnapshotKeeper", keeper))
    for _ in range(QUIET_FRAMES - 1):
        rest(1.0)
    assert len(rested) == QUIET_FRAMES - 1
    rest(1.0)
    rest(1.0)
    assert len(rested) == QUIET_FRAMES - 1, "nothing was appended for long enough"
    committed.end_offset += 1
    rest(1.0)
    assert len(rested) == QUIET_FRAMES, "it grows again"
