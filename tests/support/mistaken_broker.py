"""Edge: a broker of msgpack and HTTP alone that keeps the protocol, but for one mistake: what `broker verify` must name.

`python mistaken_broker.py [--mistake NAME] [--cache FILE] CLUSTER_ID BROKER_ID CONTROLLER_URL` runs until SIGTERM has led to
a controlled shutdown. `--cache`: where the mistake keeps_its_incarnation keeps it.
"""

import argparse
import signal
import struct
import time
from functools import partial, reduce
from http.client import HTTPConnection, HTTPException
from os import urandom
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from msgpack import packb, unpackb

CRCS = [reduce(lambda crc, _: crc >> 1 ^ 0x82F63B78 * (crc & 1), range(8), byte) for byte in range(256)]
crc32c = partial(reduce, lambda crc, byte: crc >> 8 ^ CRCS[(crc ^ byte) & 255])
KNOWN = {0, 1, 2, 3, 4, 5, 9, 12, 15, 17, 20, 27, *range(1000, 1008), 1010, 1011}
MISTAKES = {  # by name: the point of the check that finds it
    "uuid_as_text": "registration_body",
    "no_log_dir": "registration_body",
    "knows_no_groups": "registration_body",
    "stays_at_its_list": "follows_the_leader",
    "does_not_pause": "pauses",
    "ends_at_a_duplicate": "pauses",
    "new_incarnation_each_time": "repeats_a_registration",
    "refuses_new_fields": "ignores_new_fields",
    "controller_epoch_as_its_own": "first_poll",
    "crc_of_the_snapshots_frame": "position_after_image",
    "counts_frames": "position_after_delta",
    "fetches_from_the_high_watermark": "position_after_delta",
    "claims_the_high_watermark": "claims_what_it_applied",
    "wants_a_fence_for_ever": "asks_to_be_unfenced",
    "checks_no_crc": "damaged_frame",
    "is_impatient": "waits_out_a_parked_poll",
    "sleeps_between_polls": "polls_within_its_session",
    "waits_for_ever": "gives_up_a_silent_controller",
    "passes_over_diverging": "diverging",
    "ends_when_fenced": "comes_back_after_fencing",
    "keeps_a_stale_epoch": "registers_again",
    "leaves_at_once": "controlled_shutdown",
    "does_not_leave": "controlled_shutdown",
    "keeps_its_incarnation": "new_incarnation",
    "skips_unknown_records": "unknown_record",
    "polls_twice": "one_poll_at_a_time",
}


class Answer(NamedTuple):
    status: int
    body: bytes
    leader: str | None


class Broker:
    def __init__(
        self, cluster_id: str, broker_id: int, url: str, mistake: str | None, cache: Path | None
    ) -> None:
        self.urls, self.url = [url], url
        self.mistake = mistake
        self.stopping = False
        incarnation = urandom(16)
        if mistake == "keeps_its_incarnation" and cache is not None:
            if not cache.exists():
                cache.write_bytes(incarnation)
            incarnation = cache.read_bytes()
        self.who: dict[str, Any] = {
            "cluster_id": cluster_id,
            "broker_id": broker_id,
            "incarnation_id": incarnation,
        }
        self.log_dirs = [urandom(16)]
        self.epoch = -1
        self.session_s, self.wait_s = 3.0, 1.0
        self.start_over()

    def start_over(self) -> None:
        self.offset, self.last_epoch, self.crc, self.fenced = 0, -1, 0, True

    def is_(self, mistake: str) -> bool:
        return self.mistake == mistake

    def run(self) -> None:
        while True:
            if self.epoch < 0:
                self.register()
            elif self.poll():
                return
            if self.stopping and self.is_("leaves_at_once"):
                return

    # --- requests

    def post(self, path: str, body: dict[str, Any] | None, timeout_s: float, *, times: int = 1) -> Answer:
        """Return an answer; of none the status is 0. All of several equal requests are sent before the first is answered."""
        where = urlsplit(self.url)
        all_equal = [HTTPConnection(str(where.hostname), where.port, timeout=timeout_s) for _ in range(times)]
        method, data = ("GET", None) if body is None else ("POST", packb(body))
        try:
            for http in all_equal:
                http.connect()
            for http in all_equal:
                http.request(method, path, data, {"Content-Type": "application/msgpack"})
            got = http.getresponse()
            return Answer(got.status, got.read(), got.getheader("X-Controller"))
        except (OSError, HTTPException):
            return Answer(0, b"", None)
        finally:
            for http in all_equal:
                http.close()

    def failed(self, answer: Answer) -> None:
        """Go to the controller that is named, else pause and go to the next."""
        if answer.leader is not None and not self.is_("stays_at_its_list"):
            self.url = answer.leader
            return
        if not self.is_("does_not_pause"):
            time.sleep(0.05)
        self.url = self.urls[0]

    def register(self) -> None:
        if self.is_("new_incarnation_each_time"):
            self.who["incarnation_id"] = urandom(16)
        body = {
            **self.who,
            "endpoints": [["PLAINTEXT", "127.0.0.1", 9092, 0]],
            "features": [
                ["metadata.version", 25, 30],
                ["eligible.leader.replicas.version", 0, 1],
                ["metaquorum.version", 1, 5],
                ["transaction.version", 0, 2],
                *([] if self.is_("knows_no_groups") else [["group.version", 0, 1]]),
                ["share.version", 0, 1],
                ["streams.version", 0, 1],
            ],
            "rack": None,
            "log_dirs": [] if self.is_("no_log_dir") else self.log_dirs,
            "previous_broker_epoch": -1,
        }
        if self.is_("uuid_as_text"):
            body["incarnation_id"] = str(self.who["incarnation_id"])
        answer = self.post("/v1/brokers/register", body, 3.0)
        if answer.status == 409 and self.is_("ends_at_a_duplicate"):
            raise SystemExit(1)
        if answer.status != 200:
            self.failed(answer)
            return
        told = unpackb(answer.body)
        if self.is_("refuses_new_fields") and len(told) > 6:
            raise SystemExit("an answer has a field too many")
        self.epoch = told["controller_epoch" if self.is_("controller_epoch_as_its_own") else "broker_epoch"]
        self.session_s, self.wait_s = told["session_timeout_ms"] / 1000, told["max_wait_ms"] / 1000

    def request(self) -> dict[str, Any]:
        return {
            **self.who,
            "broker_epoch": self.epoch,
            "fetch_offset": self.offset,
            "last_epoch": self.last_epoch,
            "last_crc": self.crc,
            "applied_offset": self.offset,
            "want_fence": self.is_("wants_a_fence_for_ever"),
            "want_shut_down": self.stopping,
            "offline_log_dirs": [],
            "cordoned_log_dirs": None,
            "max_bytes": 1 << 20,
            "max_wait_ms": 0 if self.stopping else round(self.wait_s * 1000),
        }

    def poll(self) -> bool:
        """Poll once; answer whether the broker may end."""
        body = self.request()
        if self.is_("claims_the_high_watermark") and self.offset:
            body["applied_offset"] = max(self.high_watermark, self.offset)
        timeout_s = self.wait_s + self.session_s / 6
        timeout_s = 0.3 if self.is_("is_impatient") else 60.0 if self.is_("waits_for_ever") else timeout_s
        answer = self.post("/v1/metadata/fetch", body, timeout_s, times=2 if self.is_("polls_twice") else 1)
        if self.is_("sleeps_between_polls") and not self.fenced:
            time.sleep(self.session_s * 1.5)
        if answer.status == 409:
            if not self.is_("keeps_a_stale_epoch"):
                self.epoch = -1
            time.sleep(0.02)
            return False
        if answer.status != 200:
            self.failed(answer)
            return False
        end = 4 + int.from_bytes(answer.body[:4])
        return self.take(unpackb(answer.body[4:end]), answer.body[end:])

    def take(self, head: dict[str, Any], frames: bytes) -> bool:
        self.high_watermark = head["high_watermark"]
        if head["kind"] == "IMAGE":
            snapshot = self.post("/v1/metadata/snapshots/" + head["snapshot"]["id"], None, 3.0)
            if snapshot.status == 200:
                self.start_over()
                self.apply(snapshot.body, of_snapshot=True)
        elif head["kind"] == "DIVERGING":
            if not self.is_("passes_over_diverging"):
                self.start_over()
        else:
            self.apply(frames)
            if frames and self.is_("fetches_from_the_high_watermark"):
                self.offset = head["high_watermark"]
        if head["should_shut_down"] and self.is_("does_not_leave"):
            time.sleep(0.05)  # else it would ask thousands of times until it is given up
            return False
        return bool(head["should_shut_down"]) and self.stopping

    # --- frames

    def apply(self, data: bytes, *, of_snapshot: bool = False) -> None:
        """Apply whole frames; at the first that is damaged, stop."""
        while data:
            _, size, base, count, epoch, _, _, crc = struct.unpack_from(">IIqIiqII", data)
            frame, data = data[: 40 + size], data[40 + size :]
            if crc ^ 0xFFFFFFFF != crc32c(frame[:36] + frame[40:], 0xFFFFFFFF) and not self.is_(
                "checks_no_crc"
            ):
                return
            for kind, _, *fields in unpackb(frame[40:])[1]:
                self.fold(kind, fields)
            self.last_epoch = epoch
            if not of_snapshot:
                self.crc = crc
                self.offset = self.offset + 1 if self.is_("counts_frames") else base + count
            elif self.is_("crc_of_the_snapshots_frame"):
                self.crc = crc

    def fold(self, kind: int, fields: list[Any]) -> None:
        if kind not in KNOWN and not self.is_("skips_unknown_records"):
            raise SystemExit(f"record type {kind} is of another release")
        if kind == 1002:
            self.offset, self.crc = fields[1], fields[4]
        elif kind in (0, 17) and fields[0] == self.who["broker_id"]:
            fenced = fields[6] if kind == 0 else fields[2]
            if self.is_("ends_when_fenced") and kind == 17 and fenced and not self.stopping:
                raise SystemExit("fenced")
            self.fenced = self.fenced if fenced is None else fenced


if __name__ == "__main__":
    reader = argparse.ArgumentParser()
    reader.add_argument("--mistake", choices=MISTAKES)
    reader.add_argument("--cache", type=Path)
    reader.add_argument("cluster_id")
    reader.add_argument("broker_id", type=int)
    reader.add_argument("url")
    given = reader.parse_args()
    broker = Broker(given.cluster_id, given.broker_id, given.url, given.mistake, given.cache)

    def stop(_number: int, _frame: object) -> None:
        broker.stopping = True

    signal.signal(signal.SIGTERM, stop)
    broker.run()
