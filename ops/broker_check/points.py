"""Edge: the points of the check, in the order of a broker's life: what each wants, and how the play finds out.
Tests: tests/cluster/test_broker_check.py.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple, TypeAlias

import msgpack

from metadata_log.codec import frame_of
from metadata_log.errors import DuplicateBrokerRegistration, NotController, StaleBrokerEpoch
from metadata_log.wire.fetch import Diverging, FetchKind
from ops.broker_check.play import A_LATER_FIELD, NO_NEWS_S, Play, Turn, Wrong, read, told
from ops.broker_check.story import START

PAUSE_MIN_MS: Final = 18
REFUSALS: Final = 8
STOPPING_POLLS: Final = 2
UNKNOWN_TYPE: Final = 60_000
UNKNOWN_S: Final = 1.5
"""How long the play looks whether a broker goes beyond a record that it cannot know."""
STAMP_AT: Final = 31
"""The last byte of a frame's time: another time is as readable, only the crc tells."""
Run: TypeAlias = Callable[[Play], Awaitable[None]]


class Point(NamedTuple):
    name: str
    wanted: str
    run: Run
    needs_probe: bool = False


FIRST_LIFE: Final[list[Point]] = []
"""From the start of the broker with an empty cache to its controlled shutdown."""
SECOND_LIFE: Final[list[Point]] = []
"""From its second start on."""


def _point(wanted: str, *, of: list[Point] = FIRST_LIFE, needs_probe: bool = False) -> Callable[[Run], Run]:
    def declare(run: Run) -> Run:
        of.append(Point(run.__name__, wanted, run, needs_probe))
        return run

    return declare


@_point("a registration whose every field has its shape and range, and that a controller takes")
async def registration_body(play: Play) -> None:
    asked = await play.registration("a registration", play.patience.start_s)
    command = read(asked.registration)
    if command.cluster_id != play.story.cluster_id:
        raise Wrong(f"its cluster_id is {command.cluster_id!r}, wanted {play.story.cluster_id!r}")
    if (refusal := play.story.refusal_of(command)) is not None:
        raise Wrong(f"a controller refuses it: {refusal.error}: {refusal.message}")
    play.command = command
    play.leave(asked)


@_point("after NOT_CONTROLLER the request goes to the controller that X-Controller names, in its list or not")
async def follows_the_leader(play: Play) -> None:
    asked = await play.registration("a registration")
    leader = 1 - asked.controller
    url = play.stage.urls[leader]
    asked.refuse(NotController("this controller is not the active one"), leader=url)
    again = await play.registration(f"a registration at {url}")
    play.leave(again)
    if again.controller != leader:
        raise Wrong(f"it asked {play.stage.urls[again.controller]} again", ends=False)


@_point("a pause before each repetition after DUPLICATE_BROKER_REGISTRATION, and no end of its process")
async def pauses(play: Play) -> None:
    gaps: list[int] = []
    for _ in range(REFUSALS):
        asked = await play.registration("a registration")
        asked.refuse(DuplicateBrokerRegistration("another incarnation has a session"))
        answered_ms = play.stage.now_ms()
        again = await play.registration("a registration again")
        gaps.append(again.arrived_ms - answered_ms)
        play.leave(again)
    if min(gaps) < PAUSE_MIN_MS:
        raise Wrong(f"it repeated after {min(gaps)} ms, wanted at least {PAUSE_MIN_MS} ms", ends=False)


@_point("a registration without an answer is repeated with the same incarnation_id")
async def repeats_a_registration(play: Play) -> None:
    asked = await play.registration("a registration")
    play.broker_epoch = play.story.register(play.known)
    asked.drop()  # it is written, and the answer is lost
    again = await play.registration("the registration again")
    play.leave(again)
    command = read(again.registration)
    if command.incarnation_id != play.known.incarnation_id:
        play.command = command
        play.broker_epoch = play.story.register(command)
        raise Wrong("the repetition has another incarnation_id", ends=False)


@_point("a field of an answer that the broker does not know is passed over")
async def ignores_new_fields(play: Play) -> None:
    play.registered(await play.registration("a registration"), more=A_LATER_FIELD)
    asked = await play.ask("a poll")
    play.leave(asked)
    if asked.is_registration:
        raise Wrong("it registered again after an answer with a field of a later release")


@_point("the first poll has the registered ids, the broker_epoch of the answer and the position (0, -1, 0)")
async def first_poll(play: Play) -> None:
    turn = await play.turn()
    if turn.position != START:
        raise Wrong(f"its position is {told(turn.position)}; start it with an empty cache")
    if turn.poll.applied_offset != 0 or turn.poll.want_shut_down:
        raise Wrong("it says that it has applied records, or wants to shut down")
    play.leave(turn.asked)


@_point(
    "after IMAGE the position is the snapshot's end_offset, controller_epoch and the last_crc in its header"
)
async def position_after_image(play: Play) -> None:
    turn = await play.turn()
    play.deliver(turn.asked, kind=FetchKind.IMAGE)
    turn = await play.turn("a poll from behind the snapshot")
    if not play.stage.snapshots_sent:
        raise Wrong("it polled without a download of the snapshot")
    _at(turn, play.story.snapshot_end)
    play.leave(turn.asked)


@_point(
    "after a DELTA the position is the end, epoch and crc of the last frame that came, not the high watermark"
)
async def position_after_delta(play: Play) -> None:
    turn = await play.turn()
    play.story.fill(batches=4)
    frames = play.story.after(turn.position)
    assert frames is not None
    part = frames[:2]
    play.deliver(turn.asked, b"".join(part), more=A_LATER_FIELD)
    turn = await play.turn("a poll from behind the second frame")
    _at(turn, play.story.end_of(part))
    play.leave(turn.asked)


@_point(
    "applied_offset is what the broker has applied, never more than it was sent, and in the end all of it"
)
async def claims_what_it_applied(play: Play) -> None:
    turn = await play.turn()
    if turn.poll.applied_offset > turn.poll.fetch_offset:
        raise Wrong(
            f"it has records below {turn.poll.fetch_offset}, and says that it applied those below "
            f"{turn.poll.applied_offset}"
        )
    play.bring_further(turn)
    play.leave((await play.catch_up()).asked)


@_point("its probe does not answer 200 while it is fenced", needs_probe=True)
async def refuses_while_fenced(play: Play) -> None:
    assert play.serves is not None
    if await play.serves():
        raise Wrong("it answers 200", ends=False)


@_point("once it has applied its registration it polls with want_fence false")
async def asks_to_be_unfenced(play: Play) -> None:
    await play.unfence()


@_point("its probe answers 200 once it is online", needs_probe=True)
async def serves_when_online(play: Play) -> None:
    assert play.serves is not None
    for _ in range(round(play.patience.request_s / NO_NEWS_S)):
        turn = await play.turn()
        if await play.serves():
            play.leave(turn.asked)
            return
        await asyncio.sleep(NO_NEWS_S)
        play.deliver(turn.asked)
    raise Wrong("it answers another status", ends=False)


@_point("a frame with a wrong crc is not applied: the next poll has the position before it")
async def damaged_frame(play: Play) -> None:
    turn = await play.turn()
    before = turn.position
    play.story.fill(batches=1)
    frame = bytearray(play.story.told[-1].frame)
    frame[STAMP_AT] ^= 1
    play.deliver(turn.asked, bytes(frame))
    turn = await play.turn("a poll from before the damaged frame")
    _at(turn, before)
    play.bring_further(turn)
    play.leave((await play.catch_up()).asked)


@_point("a poll may be parked for max_wait_ms: the broker waits, and sends no other poll meanwhile")
async def waits_out_a_parked_poll(play: Play) -> None:
    turn = await play.turn()
    wait_ms = min(turn.poll.max_wait_ms, play.max_wait_ms)
    until_ms = play.stage.now_ms() + wait_ms
    while play.stage.now_ms() < until_ms and not turn.asked.is_gone:
        await asyncio.sleep(NO_NEWS_S)
    if turn.asked.is_gone:
        raise Wrong(f"it closed the connection before {wait_ms} ms were over", ends=False)
    play.deliver(turn.asked)


@_point("the next poll follows within the session")
async def polls_within_its_session(play: Play) -> None:
    turn = await play.turn("a poll", play.session_timeout_ms / 1000)
    play.leave(turn.asked)


@_point("a controller that does not answer is given up within the session")
async def gives_up_a_silent_controller(play: Play) -> None:
    turn = await play.turn()
    try:
        again = await play.turn(
            "a poll although the one before has no answer", play.session_timeout_ms / 1000 + 1
        )
    except Wrong as wrong:
        turn.asked.drop()
        raise Wrong(wrong.seen, ends=False) from wrong
    turn.asked.drop()
    play.leave(again.asked)


@_point("its probe answers no 200 once its session is over", needs_probe=True)
async def stops_with_its_session(play: Play) -> None:
    """Answer no poll for a session: the one that was answered last was sent before that."""
    assert play.serves is not None
    turn = await play.turn()
    play.deliver(turn.asked)
    until_ms = play.stage.now_ms() + play.session_timeout_ms
    while (left_ms := until_ms - play.stage.now_ms()) > 0:
        if (asked := await play.stage.next(left_ms / 1000)) is not None:
            turn.asked.drop()
            turn = Turn(asked, turn.poll)
    is_serving = await play.serves()
    if turn.asked.is_open:
        play.leave(turn.asked)
    if is_serving:
        raise Wrong("it answers 200 although no poll was answered for a session", ends=False)


@_point("after DIVERGING the position is one at or below its offset that the controller knows, or (0, -1, 0)")
async def diverging(play: Play) -> None:
    turn = await play.turn()
    common = play.story.end
    play.story.fill(batches=2)
    play.bring_further(turn)
    turn = await play.catch_up()
    play.story.fork(common.offset)
    play.deliver(
        turn.asked, kind=FetchKind.DIVERGING, diverging=Diverging(offset=common.offset, controller_epoch=1)
    )
    again = await play.turn("a poll from a position that both histories have")
    if again.position == turn.position:
        raise Wrong(f"it polled from {told(turn.position)} again")
    if again.position.offset > common.offset or play.story.after(again.position) is None:
        raise Wrong(
            f"no frame of the controller's history ends at {told(again.position)}, which must be at or below {common.offset}"
        )
    play.leave(again.asked)
    play.leave((await play.catch_up()).asked)


@_point("a fenced broker polls on, with the same epoch and incarnation, until it is unfenced")
async def comes_back_after_fencing(play: Play) -> None:
    turn = await play.turn()
    play.story.change(play.known.broker_id, fenced=True)
    play.bring_further(turn)
    await play.unfence()


@_point(
    "after STALE_BROKER_EPOCH it registers again, with the same incarnation_id, and polls with the new epoch"
)
async def registers_again(play: Play) -> None:
    turn = await play.turn()
    old = play.broker_epoch
    play.story.unregister(play.known.broker_id)
    turn.asked.refuse(StaleBrokerEpoch("this broker is not registered; register again"))
    asked = await play.registration("a registration")
    command = read(asked.registration)
    if command.incarnation_id != play.known.incarnation_id:
        raise Wrong("it registered with another incarnation_id, although its process runs on")
    if command.previous_broker_epoch not in (-1, old):
        raise Wrong(f"its previous_broker_epoch is {command.previous_broker_epoch}, wanted {old} or -1")
    play.command = command
    play.broker_epoch = play.story.register(command)
    play.registered(asked)
    await play.unfence()


@_point("asked to stop, it polls with want_shut_down until should_shut_down is true, and ends then")
async def controlled_shutdown(play: Play) -> None:
    await play.broker.ask_to_stop()
    wanted = "a poll with want_shut_down"
    turn = await play.turn(wanted)
    deadline_ms = play.stage.now_ms() + round(play.patience.start_s * 1000)
    while not turn.poll.want_shut_down:
        if play.stage.now_ms() > deadline_ms:
            raise Wrong(f"no poll had want_shut_down, wanted {wanted}")
        await asyncio.sleep(NO_NEWS_S)
        play.deliver(turn.asked)
        turn = await play.turn(wanted)
    play.story.change(play.known.broker_id, stopping=True)
    for _ in range(STOPPING_POLLS):
        play.deliver(turn.asked, b"".join(play.story.after(turn.position) or ()))
        turn = await play.turn("a poll: should_shut_down was false")
        if not turn.poll.want_shut_down:
            raise Wrong("it took want_shut_down back")
    play.story.change(play.known.broker_id, fenced=True)
    play.deliver(turn.asked, b"".join(play.story.after(turn.position) or ()), should_shut_down=True)
    await _ends(play)


async def _ends(play: Play) -> None:
    """Wait for the end of the process; where it is not watched, look for a second whether polls end."""
    deadline_ms = play.stage.now_ms() + round(1000 * (play.patience.start_s if play.broker.is_watched else 1))
    polls = 0
    while play.stage.now_ms() < deadline_ms and play.broker.ended is None:
        if (asked := await play.stage.next(NO_NEWS_S)) is not None:
            polls += 1
            play.deliver(asked, should_shut_down=True)
    if play.broker.is_watched and play.broker.ended is None:
        raise Wrong(f"it runs on, with {polls} further polls")
    if not play.broker.is_watched and polls > 1:
        raise Wrong(f"it sent {polls} further polls within a second")


@_point("a new start of the process has a new incarnation_id", of=SECOND_LIFE)
async def new_incarnation(play: Play) -> None:
    before, old = play.known.incarnation_id, play.broker_epoch
    asked = await play.registration("a registration", play.patience.start_s)
    command = read(asked.registration)
    play.command = command
    play.broker_epoch = play.story.register(command)
    play.registered(asked)
    if command.incarnation_id == before:
        raise Wrong("it has the incarnation_id of the process before", ends=False)
    if command.previous_broker_epoch not in (-1, old):
        raise Wrong(
            f"its previous_broker_epoch is {command.previous_broker_epoch}, wanted {old} or -1", ends=False
        )


@_point("a record of an unknown type is never passed over: no poll has a position after it", of=SECOND_LIFE)
async def unknown_record(play: Play) -> None:
    turn = await play.catch_up()
    end = play.story.end
    body: bytes = msgpack.packb([[None] * 6, [[UNKNOWN_TYPE, 0, "of a later release"]]])
    frame, _ = frame_of(
        body,
        base_offset=end.offset,
        record_count=1,
        controller_epoch=end.epoch,
        appended_at_ms=play.story.image.last_time_ms + 1,
        previous_crc=end.crc,
    )
    play.deliver(turn.asked, frame)
    until_ms = play.stage.now_ms() + round(UNKNOWN_S * 1000)
    while play.stage.now_ms() < until_ms and play.broker.ended is None:
        asked = await play.stage.next(NO_NEWS_S)
        if asked is None or asked.is_registration:
            continue
        poll = read(asked.poll)
        if max(poll.fetch_offset, poll.applied_offset) > end.offset:
            raise Wrong(f"it polled from {poll.fetch_offset}, behind the record at {end.offset}")
        play.deliver(asked)


def _at(turn: Turn, wanted: tuple[int, int, int]) -> None:
    if turn.position != wanted:
        raise Wrong(f"its position is {told(turn.position)}, wanted {wanted}")
