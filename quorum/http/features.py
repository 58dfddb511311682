"""Edge: finalized features over HTTP: list, and finalize at other levels.
Tests: tests/unit/quorum/http/test_administration.py.
"""

from collections.abc import Mapping
from itertools import islice
from typing import Annotated, Any, Final, Literal

from aiohttp import web
from msgspec import Meta

from metadata_log.errors import InvalidRequest
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.limits import LARGE_VIEW_ITEMS, LIST_ITEMS_MAX, PARTITIONS_LISTED_MAX
from metadata_log.metadata_versions import added_between
from metadata_log.node.http.routes import NAME, NUMBER
from metadata_log.records.features import KRAFT_VERSION, METADATA_VERSION
from metadata_log.records.quorum import KRAFT_VERSION_LEVEL
from metadata_log.wire.shapes import Natural32, Shape, check_text, read_shape
from quorum.decide.features import (
    FeaturesUpdated,
    FeatureUpdate,
    UpdateFeatures,
    UpgradeType,
    supported,
)
from quorum.http.bodies import integer
from quorum.http.door import Door, Write, carry_out, items_of
from quorum.http.routes import AS_FRESH, reading, writing
from quorum.views.level_losses import losses


class WantedLevel(Shape, frozen=True):
    feature: str
    level: Natural32
    upgrade_type: Literal["upgrade", "safe_downgrade", "unsafe_downgrade"] = "upgrade"


class WantedLevels(Shape, frozen=True):
    updates: Annotated[tuple[WantedLevel, ...], Meta(min_length=1, max_length=LIST_ITEMS_MAX)]
    validate_only: bool = False


async def list_features(door: Door, request: web.Request) -> web.Response:
    known = {
        **supported(unstable=door.settings.features.unstable_levels),
        KRAFT_VERSION: (0, KRAFT_VERSION_LEVEL),
    }
    return await door.read_items(request, lambda image: _described(image, known))


def _described(image: MetadataImage, known: Mapping[str, tuple[int, int]]) -> list[dict[str, Any]]:
    """Return the finalized features, and those that this controller can finalize, by name."""
    levels = {**image.features, KRAFT_VERSION: image.quorum.kraft_version or 0}
    return [
        {
            "feature": name,
            "level": levels.get(name, 0),
            "supported_min": known.get(name, (None, None))[0],
            "supported_max": known.get(name, (None, None))[1],
        }
        for name in sorted({*image.features, *known})
    ]


async def preview(door: Door, request: web.Request) -> web.StreamResponse:
    """Answer with what a lower level could not hold: the first rows, and how many there are; nothing is written."""
    feature, wanted = request.query.get("feature"), request.query.get("level")
    if feature is None or wanted is None:
        raise InvalidRequest("feature and level say what is looked at")
    level = integer(wanted, "level")
    known = supported(unstable=door.settings.features.unstable_levels)
    if feature == KRAFT_VERSION:
        raise InvalidRequest(f"{KRAFT_VERSION} is never lowered, so there is nothing that it could lose")
    if feature not in known:
        raise InvalidRequest(
            f"{feature!r} is no feature that this controller knows: {', '.join(sorted(known))}"
        )
    least, most = known[feature]
    if not least <= level <= most:
        raise InvalidRequest(f"{feature} has no level {level}: this controller supports {least} to {most}")

    def view(image: MetadataImage) -> dict[str, Any]:
        found = losses(image, feature, level)
        rows = [loss._asdict() for loss in islice(found, PARTITIONS_LISTED_MAX)]
        count = len(rows) + sum(1 for _ in found)
        present = image.features.get(feature, 0)
        gone = added_between(level, present) if feature == METADATA_VERSION else ()
        return items_of(image, rows) | {
            "feature": feature,
            "level": level,
            "present": present,
            "count": count,
            "adds": [{"level": each.level, "name": each.name, "adds": each.adds} for each in gone],
        }

    return await door.read_large(
        request, view, is_large=lambda image: image.topics.counts.partitions > LARGE_VIEW_ITEMS
    )


def _update(body: Any) -> UpdateFeatures:
    wanted = read_shape(body, WantedLevels, "features")
    for one in wanted.updates:
        check_text("features.feature", one.feature)
    return UpdateFeatures(
        updates=tuple(
            FeatureUpdate(one.feature, one.level, UpgradeType[one.upgrade_type.upper()])
            for one in wanted.updates
        ),
        validate_only=wanted.validate_only,
    )


def _updated(outcome: FeaturesUpdated) -> dict[str, Any]:
    return {"features": [{"feature": name, "level": level} for name, level in outcome.levels]}


WRITES: Final = {"UpdateFeatures": Write(_update, _updated)}
ROUTES: Final = (
    reading("/v1/features", list_features, "DescribeFeatures"),
    reading(
        "/v1/features/preview",
        preview,
        "DescribeFeatures",
        {**AS_FRESH, "feature": NAME, "level": NUMBER},
    ),
    writing("POST", "/v1/features", carry_out(WRITES["UpdateFeatures"]), "UpdateFeatures"),
)
