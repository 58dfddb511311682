"""Edge: what a client asks first: which requests and features this controller knows, and which controllers there are."""

from functools import cache
from typing import Any, Final

from metadata_log.kafka.messages import API_VERSIONS, REQUESTS, answer_tail
from metadata_log.kafka.reading import Values
from metadata_log.records.quorum import KRAFT_VERSION_LEVEL
from quorum.decide.features import SUPPORTED
from quorum.kafka.door import NO_THROTTLE, Api, Asked, AtOnce, KafkaDoor, Prepared
from quorum.kafka.errors import NONE, UNSUPPORTED_VERSION

KRAFT_VERSION: Final = "kraft.version"
NO_EPOCH: Final = -1
FEATURES_FROM_0: Final = 4
"""From this version of the answer on clients take a feature whose lowest level is 0. Source: KIP-1022."""


@cache
def known_versions() -> bytes:
    """Return the answer, in the oldest version, to a request for versions in one that is newer than those known here."""
    keys = ((API_VERSIONS, *REQUESTS[API_VERSIONS].versions),)
    return answer_tail(API_VERSIONS, 0, _values(keys, error=UNSUPPORTED_VERSION))


def api_versions(door: KafkaDoor, asked: Asked) -> Prepared:
    version, image = asked.version, door.controller.committed
    finalized = tuple((name, level, level) for name, level in sorted(image.features.items()))
    kraft_version = image.quorum.kraft_version
    if kraft_version:
        finalized = (*finalized, (KRAFT_VERSION, kraft_version, kraft_version))
    supported = [*((name, *levels) for name, levels in sorted(SUPPORTED.items()))]
    supported.append((KRAFT_VERSION, 0, KRAFT_VERSION_LEVEL))
    if version < FEATURES_FROM_0:
        supported = [feature for feature in supported if feature[1] > 0]
    values = _values(door.advertised, tuple(supported), image.end_offset - 1, finalized)
    return Prepared(answer_tail(API_VERSIONS, version, values))


def _values(
    keys: Any, supported: Any = (), epoch: int = NO_EPOCH, finalized: Any = (), *, error: int = NONE
) -> Values:
    return (error, keys, NO_THROTTLE, supported, epoch, finalized, False)


APIS: Final = (Api(API_VERSIONS, AtOnce(api_versions), right=None),)
