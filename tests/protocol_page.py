"""Edge: `python -m tests.protocol_page`: writes the drawing, the tables and the exchange of docs/broker-protocol.md."""

import enum
import random
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgpack
import msgspec
from msgspec import inspect

from broker_agent.config import BrokerSettings
from broker_agent.follower import Position as AgentPosition
from broker_agent.session import SUPPORTED_FEATURES, Call, Fetched, Refused, Session
from metadata_log import errors
from metadata_log.codec import HEADER_BYTES
from metadata_log.ids import BrokerId, NodeId, Uuid
from metadata_log.limits import TEXT_BYTES_MAX
from metadata_log.node.http.answers import status_of
from metadata_log.records.brokers import BrokerEndpoint
from metadata_log.records.features import (
    ELIGIBLE_LEADER_REPLICAS_VERSION,
    METADATA_VERSION,
    METADATA_VERSION_LEVEL,
    METAQUORUM_VERSION,
    METAQUORUM_VERSION_LEVEL,
)
from metadata_log.wire.commands import RegisterBroker, Registered
from metadata_log.wire.fetch import (
    BrokerState,
    Diverging,
    FetchAnswer,
    FetchKind,
    FetchRequest,
    SnapshotOffer,
    encode_fetch_body,
)
from ops.broker_check.check import AT_A_TIME, AT_A_TIME_WANTED
from ops.broker_check.points import FIRST_LIFE, SECOND_LIFE
from ops.broker_check.story import START, Position, Story
from quorum.decide.founding import Founding
from tests.state_page import A_BROKER, drawn

PAGE: Final = Path(__file__).resolve().parents[1] / "docs" / "broker-protocol.md"

# --- fields

SHAPES: Final[Mapping[str, type[msgspec.Struct]]] = {
    "POST /v1/brokers/register": RegisterBroker,
    "Its answer": Registered,
    "POST /v1/metadata/fetch": FetchRequest,
    "The map in its answer": FetchAnswer,
    "snapshot": SnapshotOffer,
    "diverging": Diverging,
}
MEANINGS: Final = {
    "RegisterBroker.cluster_id": "the cluster's id, 22 characters",
    "RegisterBroker.broker_id": "yours; no other broker and no controller has it",
    "RegisterBroker.incarnation_id": "random, of this process",
    "RegisterBroker.endpoints": "where clients find you; port 1 to 65535; security_protocol 0 PLAINTEXT, 1 SSL, "
    "2 SASL_PLAINTEXT, 3 SASL_SSL; each name once; may be empty",
    "RegisterBroker.features": "the levels that you support, 0 to 32767: metadata.version and every [finalized "
    "feature](#features) are needed; metaquorum.version says which records you know",
    "RegisterBroker.rack": "an empty one counts as nil",
    "RegisterBroker.log_dirs": "the ids of your log directories, at least one, each once, no reserved id",
    "RegisterBroker.previous_broker_epoch": "of the run that ended cleanly; else -1",
    "Registered.broker_epoch": "yours: the offset of your registration",
    "Registered.controller_id": "of the active controller",
    "Registered.controller_epoch": "its epoch",
    "Registered.high_watermark": "the end of the log that is committed, exclusive",
    "Registered.session_timeout_ms": "silent for this long you are fenced",
    "Registered.max_wait_ms": "how long it parks a poll at most",
    "FetchRequest.cluster_id": "as registered",
    "FetchRequest.broker_id": "as registered; -1: an observer, without a session",
    "FetchRequest.broker_epoch": "of the answer to the registration; -1 of an observer",
    "FetchRequest.incarnation_id": "as registered",
    "FetchRequest.fetch_offset": "position: the next wanted offset",
    "FetchRequest.last_epoch": "position: controller_epoch of the frame before; -1 at 0",
    "FetchRequest.last_crc": "position: crc of the frame before; 0 at 0",
    "FetchRequest.applied_offset": "what you have applied, exclusive",
    "FetchRequest.want_fence": "you are not ready to serve",
    "FetchRequest.want_shut_down": "you want to stop",
    "FetchRequest.offline_log_dirs": "all directories that failed since the process started",
    "FetchRequest.cordoned_log_dirs": "that get no new replicas; nil: not told",
    "FetchRequest.max_bytes": "of frames in the answer; a larger first frame comes all the same",
    "FetchRequest.max_wait_ms": "how long the poll may be parked",
    "FetchAnswer.kind": "DELTA: frames follow, or nothing is new",
    "FetchAnswer.high_watermark": "as above",
    "FetchAnswer.log_start_offset": "where the controller's log begins",
    "FetchAnswer.controller_id": "as above",
    "FetchAnswer.controller_epoch": "as above",
    "FetchAnswer.broker_state": "what you are at the controller; nil: an observer, or you were removed meanwhile",
    "FetchAnswer.should_shut_down": "you may end",
    "FetchAnswer.snapshot": "of IMAGE, else nil",
    "FetchAnswer.diverging": "of DIVERGING, else nil",
    "SnapshotOffer.id": "for GET /v1/metadata/snapshots/ID",
    "SnapshotOffer.end_offset": "of the log that it contains, exclusive",
    "SnapshotOffer.controller_epoch": "of the last batch that it contains",
    "SnapshotOffer.bytes": "of the file",
    "SnapshotOffer.sha256": "of the file, in hex",
    "Diverging.offset": "the end of what both may have, exclusive",
    "Diverging.controller_epoch": "the epoch there",
}


def fields() -> Iterator[str]:
    for title, shape in SHAPES.items():
        yield f"\n**{title}**\n\n| field | kind | meaning |\n|---|---|---|\n"
        described = inspect.type_info(shape)
        assert isinstance(described, inspect.StructType)
        for field in described.fields:
            yield f"| {field.name} | {_kind(field.type)} | {MEANINGS[f'{shape.__name__}.{field.name}']} |\n"


def _kind(of: inspect.Type) -> str:
    """Return a kind in words, with its bounds."""
    match of:
        case inspect.IntType(ge=least, le=most):
            return f"integer, {least} to {_bound(most)}"
        case inspect.StrType():
            return f"text, at most {TEXT_BYTES_MAX} bytes"
        case inspect.BytesType(min_length=size):
            return f"bin of {size}"
        case inspect.BoolType():
            return "true or false"
        case inspect.EnumType(cls=kinds):
            return ", ".join(f'"{one.value}"' for one in kinds if isinstance(one, enum.Enum))
        case inspect.VarTupleType(item_type=item, max_length=most):
            return f"array of {_kind(item)}, at most {most:,}"
        case inspect.NamedTupleType(fields=row):
            return f"[{', '.join(field.name for field in row)}]"
        case inspect.UnionType(types=types):
            return " or ".join("nil" if isinstance(one, inspect.NoneType) else _kind(one) for one in types)
        case inspect.StructType():
            return "map"
        case _:
            raise AssertionError(f"a kind without words: {of}")


def _bound(most: int | None) -> str:
    return {2**31 - 1: "2^31 - 1", 2**32 - 1: "2^32 - 1", 2**63 - 1: "2^63 - 1"}.get(most or 0, str(most))


# --- features

ABOUT: Final = {
    METADATA_VERSION: "the records of Kafka's log; from 17 on brokers say their log directories",
    ELIGIBLE_LEADER_REPLICAS_VERSION: "who may lead once an ISR was too small; `previous_broker_epoch` counts for it",
    METAQUORUM_VERSION: "the records of this log: the levels whose records you know",
    "transaction.version": "transactions of producers",
    "group.version": "consumer groups of KIP-848",
    "share.version": "share groups of KIP-932",
    "streams.version": "groups of Kafka Streams, KIP-1071",
}


def feature_rows() -> Iterator[str]:
    yield "| feature | level of a new cluster | our brokers register | it is about |\n|---|---|---|---|\n"
    founding = Founding.at(METADATA_VERSION_LEVEL)
    levels = {METADATA_VERSION: founding.metadata_version, METAQUORUM_VERSION: METAQUORUM_VERSION_LEVEL}
    levels |= dict(founding.levels)
    for name, low, high in SUPPORTED_FEATURES:
        yield f"| {name} | {levels.pop(name)} | {low} to {high} | {ABOUT[name]} |\n"
    assert not levels, "a new cluster has them, and no broker of ours registers them"


# --- errors

TOLD: Final[tuple[type[errors.MetadataError], ...]] = (
    errors.NotController,
    errors.StaleBrokerEpoch,
    errors.DuplicateBrokerRegistration,
    errors.ThrottlingQuotaExceeded,
    errors.OutcomeUnknown,
    errors.LogDamaged,
    errors.Fault,
    errors.InconsistentClusterId,
    errors.InvalidRegistration,
    errors.UnsupportedVersion,
    errors.PolicyViolation,
    errors.InvalidRequest,
    errors.AuthenticationFailed,
    errors.NotAuthorized,
)
"""What a registration or a poll may be answered."""
AGAIN_ELSEWHERE: Final = "ask again: at the controller that X-Controller names, else at the next"
REGISTER_AGAIN: Final = "register again, with the same incarnation_id"
AFTER_A_PAUSE: Final = "pause, then ask the same controller again"
GIVE_UP: Final = "give up: end, with the message for the operator"


def advice(kind: type[errors.MetadataError], *, is_registered: bool) -> str:
    """Return what the session of our own broker does after an error."""
    settings = BrokerSettings(
        cluster_id="A" * 22,
        broker_id=BrokerId(11),
        data_dir=Path(),
        controllers=("http://a:1", "http://b:1"),
        listen_http=("127.0.0.1", 1),
    )
    session = Session(
        settings,
        incarnation_id=Uuid(bytes(16)),
        log_dirs=(Uuid(bytes(16)),),
        endpoints=(),
        previous_broker_epoch=-1,
        rng=random.Random(1),
    )
    if is_registered:
        session.on_registered(REGISTERED)
        call = session.next_step(0, AgentPosition(0, -1, 0))
        assert isinstance(call, Call)
        session.on_fetched(0, call, Fetched(answer=_head(FetchKind.DELTA), frames=b""))
    try:
        session.on_refused(1, Refused(error=kind("refused")))
    except errors.Rejected:
        return GIVE_UP
    if is_registered and session.broker_epoch is None:
        return REGISTER_AGAIN
    step = session.next_step(1, AgentPosition(0, -1, 0))
    return (
        AGAIN_ELSEWHERE if isinstance(step, Call) and step.url != settings.controllers[0] else AFTER_A_PAUSE
    )


def error_rows() -> Iterator[str]:
    yield "| error | number | family | status | what to do |\n|---|---|---|---|---|\n"
    for kind in TOLD:
        status = "421, or 503" if kind is errors.NotController else status_of(kind(""))
        is_registered = kind is not errors.DuplicateBrokerRegistration
        what = advice(kind, is_registered=is_registered)
        yield f"| {kind.error} | {kind.code} | {kind.family} | {status} | {what} |\n"


# --- points


def point_rows() -> Iterator[str]:
    yield "| point | what it wants |\n|---|---|\n"
    for point in (*FIRST_LIFE, *SECOND_LIFE):
        of = " (with URL)" if point.needs_probe else ""
        yield f"| {point.name}{of} | {point.wanted} |\n"
    yield f"| {AT_A_TIME} | {AT_A_TIME_WANTED} |\n"


# --- the exchange

CLUSTER_ID: Final = "MkU3OEVBNTcwNTJENDM2Qg"
INCARNATION: Final = Uuid(bytes.fromhex("000102030405060708090a0b0c0d0e0f"))
DIRECTORY: Final = Uuid(bytes.fromhex("101112131415161718191a1b1c1d1e1f"))
WIDTH: Final = 44
"""Characters of hex in a line."""
HEADER: Final = (
    *(("magic", 2), ("format", 1), ("flags", 1), ("body_bytes", 4), ("base_offset", 8), ("record_count", 4)),
    *(("controller_epoch", 4), ("appended_at_ms", 8), ("previous_crc", 4), ("crc", 4)),
)
REGISTRATION: Final = RegisterBroker(
    cluster_id=CLUSTER_ID,
    broker_id=BrokerId(11),
    incarnation_id=INCARNATION,
    endpoints=(BrokerEndpoint("PLAINTEXT", "127.0.0.1", 9092, 0),),
    features=SUPPORTED_FEATURES,
    rack=None,
    log_dirs=(DIRECTORY,),
    previous_broker_epoch=-1,
)
REGISTERED: Final = Registered(
    broker_epoch=30,
    controller_id=NodeId(1),
    controller_epoch=1,
    high_watermark=31,
    session_timeout_ms=9_000,
    max_wait_ms=3_000,
)


class Part(NamedTuple):
    """One body of the exchange: where it goes, and its bytes with their meanings."""

    title: str
    body: bytes
    lines: list[tuple[bytes, str]]


def parts() -> list[Part]:
    """Return the bodies of the exchange, in order."""
    story = Story(CLUSTER_ID)
    assert story.register(REGISTRATION) == REGISTERED.broker_epoch
    offer, behind, frame = story.offer, story.snapshot_end, story.told[-1].frame
    image = encode_fetch_body(_head(FetchKind.IMAGE, snapshot=offer), b"")
    delta = encode_fetch_body(_head(FetchKind.DELTA), frame)
    diverging = encode_fetch_body(
        _head(FetchKind.DIVERGING, diverging=Diverging(offset=30, controller_epoch=1)), b""
    )
    register, registered = (msgpack.packb(one.to_map()) for one in (REGISTRATION, REGISTERED))
    first = msgpack.packb(_poll(START).to_map())
    second = msgpack.packb(_poll(behind).to_map())
    third = msgpack.packb(_poll(story.end).to_map())
    header_frame = story.snapshot[: HEADER_BYTES + int.from_bytes(story.snapshot[4:8])]
    return [
        Part("1. The broker sends POST /v1/brokers/register", register, _of_map(register)),
        Part("2. The controller answers 200", registered, _of_map(registered)),
        Part("3. The broker sends POST /v1/metadata/fetch: it has nothing yet", first, _of_map(first)),
        Part("4. The controller answers 200: take the snapshot", image, _of_answer(image)),
        Part(
            f"5. The broker sends GET /v1/metadata/snapshots/{offer.id}; the file's first frame. Its record has cluster_id, "
            "end_offset, controller_epoch, last_time_ms and last_crc",
            header_frame,
            _of_frame(header_frame),
        ),
        Part("6. The broker polls from the end of the snapshot", second, _of_map(second)),
        Part(
            "7. The controller answers 200: one frame, the broker's own registration",
            delta,
            _of_answer(delta),
        ),
        Part("8. The broker polls from the end of that frame", third, _of_map(third)),
        Part("What a broker of another history would be answered instead", diverging, _of_answer(diverging)),
    ]


def _poll(position: Position) -> FetchRequest:
    return FetchRequest(
        cluster_id=CLUSTER_ID,
        broker_id=BrokerId(11),
        broker_epoch=REGISTERED.broker_epoch,
        incarnation_id=INCARNATION,
        fetch_offset=position.offset,
        last_epoch=position.epoch,
        last_crc=position.crc,
        applied_offset=position.offset,
        want_fence=False,
        want_shut_down=False,
        offline_log_dirs=(),
        cordoned_log_dirs=None,
        max_bytes=1 << 20,
        max_wait_ms=REGISTERED.max_wait_ms,
    )


def _head(
    kind: FetchKind, *, snapshot: SnapshotOffer | None = None, diverging: Diverging | None = None
) -> FetchAnswer:
    return FetchAnswer(
        kind=kind,
        high_watermark=REGISTERED.high_watermark,
        log_start_offset=30,
        controller_id=REGISTERED.controller_id,
        controller_epoch=1,
        broker_state=BrokerState.FENCED,
        should_shut_down=False,
        snapshot=snapshot,
        diverging=diverging,
    )


def _of_map(data: bytes) -> list[tuple[bytes, str]]:
    """Return the bytes of a msgpack map: its head, then each field with its value."""
    reader = msgpack.Unpacker()
    reader.feed(data)
    count, at = reader.read_map_header(), reader.tell()
    lines = [(data[:at], f"a map of {count}")]
    for _ in range(count):
        name = reader.unpack()
        value = reader.unpack()
        lines.append((data[at : reader.tell()], f"{name}: {_shown(value)}"))
        at = reader.tell()
    return lines


def _of_answer(data: bytes) -> list[tuple[bytes, str]]:
    size = int.from_bytes(data[:4])
    lines = [(data[:4], f"L: the map has {size} bytes"), *_of_map(data[4 : 4 + size])]
    return lines + (_of_frame(data[4 + size :]) if data[4 + size :] else [])


def _of_frame(frame: bytes) -> list[tuple[bytes, str]]:
    lines, at = [], 0
    for name, size in HEADER:
        value = int.from_bytes(frame[at : at + size])
        lines.append((frame[at : at + size], f"{name}: {hex(value) if name == 'magic' else value}"))
        at += size
    reader = msgpack.Unpacker()
    reader.feed(frame[at:])
    body = frame[at:]
    assert reader.read_array_header() == 2
    lines.append((body[: reader.tell()], "the body, an array of two"))
    before = reader.tell()
    envelope = reader.unpack()
    lines.append((body[before : reader.tell()], f"the envelope: {_shown(envelope)}"))
    before = reader.tell()
    count = reader.read_array_header()
    lines.append((body[before : reader.tell()], f"an array of {count} records: [type, version, fields...]"))
    for _ in range(count):
        before = reader.tell()
        record = reader.unpack()
        lines.append((body[before : reader.tell()], _shown(record)))
    return lines


def _shown(value: Any) -> str:
    match value:
        case None:
            return "nil"
        case bool():
            return str(value).lower()
        case str():
            return f'"{value}"'
        case bytes():
            return f"bin {value.hex()}"
        case list():
            return f"[{', '.join(map(_shown, value))}]"
        case dict():
            return f"{{{', '.join(f'{name}: {_shown(item)}' for name, item in value.items())}}}"
        case _:
            return str(value)


def exchange() -> Iterator[str]:
    for part in parts():
        assert b"".join(data for data, _ in part.lines) == part.body
        yield f"\n**{part.title}**\n\n"
        for data, meaning in part.lines:
            first, *rest = re.findall(f".{{1,{WIDTH}}}", data.hex())
            yield f"    {first:{WIDTH}}  {meaning}\n"
            yield from (f"    {more}\n" for more in rest)


# --- the page

MADE: Final = {
    "life": lambda: drawn(A_BROKER),
    "fields": fields,
    "features": feature_rows,
    "errors": error_rows,
    "points": point_rows,
    "exchange": exchange,
}


def written(page: str) -> str:
    """Return the page with its parts as the code has them now."""
    for name, make in MADE.items():
        begin = f"<!-- {name}: written by `python -m tests.protocol_page` -->\n"
        end = f"<!-- end of {name} -->\n"
        before, _, rest = page.partition(begin)
        page = f"{before}{begin}{''.join(make())}{end}{rest.partition(end)[2]}"
    return page


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
