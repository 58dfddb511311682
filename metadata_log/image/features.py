"""Pure: the finalized features as the log has made them. Tests: tests/property/test_folding.py."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

import immutables

from metadata_log.digest import hex_of_text
from metadata_log.image.subject import Builders, SubjectBuilder
from metadata_log.records.features import (
    METADATA_VERSION,
    METADATA_VERSION_LEVEL,
    METAQUORUM_VERSION,
    METAQUORUM_VERSION_MIN,
    FeatureLevelRecord,
)
from metadata_log.records.registry import Record

if TYPE_CHECKING:
    from metadata_log.image.metadata_image import Delta

FeaturesImage: TypeAlias = "immutables.Map[str, int]"
"""Levels by name; a feature that is not here has the level 0."""


class FeaturesBuilder(SubjectBuilder[FeaturesImage]):
    FIELD = "features"

    def __init__(self, before: FeaturesImage, others: Builders) -> None:
        super().__init__(before, others)
        self._features = before.mutate()
        self._touched: set[str] = set()

    def set_level(self, record: FeatureLevelRecord) -> None:
        if record.level:
            self._features[record.name] = record.level
        else:
            self._features.pop(record.name, None)
        self._touched.add(record.name)

    STATES = {FeatureLevelRecord: set_level}  # noqa: RUF012 (a ClassVar of the base)

    def finish(self) -> FeaturesImage:
        return self._features.finish()

    def delta(self) -> dict[str, Any]:
        return {"features": frozenset(self._touched)}

    @staticmethod
    def touched_lines(image: FeaturesImage, touched: "Delta") -> Iterator[str]:
        return (feature_line(name, image[name]) for name in touched.features if name in image)

    @staticmethod
    def lines(image: FeaturesImage) -> Iterator[str]:
        return (feature_line(name, level) for name, level in image.items())

    @staticmethod
    def records(image: FeaturesImage) -> Iterator[Record]:
        for name in sorted(image):
            yield FeatureLevelRecord(name, image[name])

    @staticmethod
    def view(image: FeaturesImage) -> dict[str, Any]:
        return {"features": {name: image[name] for name in sorted(image)}}


def metaquorum_version(features: FeaturesImage) -> int:
    """Return the level that says which records of ours are written; 1 in a log that names none."""
    return features.get(METAQUORUM_VERSION, METAQUORUM_VERSION_MIN)


def metadata_level(features: FeaturesImage) -> int:
    """Return the level of metadata.version; that of a new cluster in a log that names none."""
    return features.get(METADATA_VERSION, METADATA_VERSION_LEVEL)


def feature_line(name: str, level: int) -> str:
    return f"f|{hex_of_text(name)}|{level}"
