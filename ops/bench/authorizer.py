"""Edge: `bench authorizer`: what a question about a right costs, with few ACLs and with many.

No process is started; times are those of the processor. Tests: tests/cluster/test_bench.py.
"""

import random
import time
from typing import Any, Final

from metadata_log.apply import apply, image_of
from metadata_log.batch import NO_ENVELOPE
from metadata_log.codec import encode
from metadata_log.ids import random_uuid
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.records.acls import (
    WILDCARD,
    AccessControlEntryRecord,
    AclOperation,
    PatternType,
    PermissionType,
    ResourceType,
)
from metadata_log.records.snapshots import SnapshotHeaderRecord
from ops.bench.decisions import CLUSTER_ID
from ops.bench.measure import percentile, report
from quorum.decide.authorizer import Question, verdict_of

_FEW: Final = 25
_AT_ONCE: Final = 100
"""Questions between two looks at the clock."""
_BATCH: Final = 5_000
_OPERATIONS: Final = (AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE)


def authorizer(*, acls: int, questions: int, rounds: int) -> dict[str, Any]:
    """Return what one question costs in microseconds, with 25 ACLs and with `acls`."""
    ours: dict[str, object] = {"unit": "us"}
    for count in (_FEW, acls):
        image, rng = _image(count), random.Random(count)
        costs = [_cost(image, rng, count) for _ in range(rounds * questions // _AT_ONCE)]
        ours[f"{count} ACLs"] = {"p50": percentile(costs, 50), "p99": percentile(costs, 99)}
    return report(
        "authorizer",
        params={"acls": acls, "questions": questions},
        ours=ours,
        peers={},
        rounds=rounds,
        probes={},
    )


def _image(count: int) -> MetadataImage:
    """Return ACLs on topics of 500 teams, of 1,000 users; one in five is of a prefix."""
    rng = random.Random(0)
    header = SnapshotHeaderRecord(
        cluster_id=CLUSTER_ID, end_offset=1, controller_epoch=1, last_time_ms=0, last_crc=0
    )
    image = image_of([], header=header)
    for first in range(0, count, _BATCH):
        batch, _ = encode(
            base_offset=image.end_offset,
            controller_epoch=1,
            appended_at_ms=0,
            previous_crc=image.last_crc,
            envelope=NO_ENVELOPE,
            records=[
                AccessControlEntryRecord(
                    random_uuid(rng),
                    ResourceType.TOPIC,
                    _topic(number),
                    PatternType.PREFIXED if number % 5 == 0 else PatternType.LITERAL,
                    f"User:u{number % 1_000}",
                    WILDCARD,
                    _OPERATIONS[number % 3],
                    PermissionType.ALLOW,
                )
                for number in range(first, min(first + _BATCH, count))
            ],
        )
        image = apply(image, batch).image
    return image


def _topic(number: int) -> str:
    return f"team-{number % 500}-topic-{number}"


def _cost(image: MetadataImage, rng: random.Random, count: int) -> float:
    """Return the microseconds of one question, of which each second is of a user with a rule for its topic."""
    asked = []
    for place in range(_AT_ONCE):
        number = rng.randrange(count)
        user = number if place % 2 else number + 1
        asked.append(
            Question(
                f"User:u{user % 1_000}",
                "10.0.0.1",
                rng.choice(_OPERATIONS),
                ResourceType.TOPIC,
                _topic(number),
            )
        )
    began = time.process_time()
    for question in asked:
        verdict_of(image, question)
    return (time.process_time() - began) * 1e6 / _AT_ONCE
