"""Questions about settings, levels of features, and request ids that are used already."""

from typing import Final

from metadata_log.image.metadata_image import MetadataImage
from metadata_log.records.configs import BROKER, TOPIC
from metadata_log.records.features import ELIGIBLE_LEADER_REPLICAS_VERSION, METADATA_VERSION
from quorum.decide.configs import ConfigChange, ConfigOperation, IncrementalAlterConfigs, ResourceChange
from quorum.decide.features import FeatureUpdate, UpdateFeatures, UpgradeType
from tests.simulation.rules.batches import settings_of
from tests.simulation.rules.contrary.question import (
    CLIENT,
    OWN,
    STRANGER,
    Drawing,
    Errors,
    Question,
    always,
    brokers_of,
)
from tests.simulation.world.cluster_node import uuid

OWN_LIST: Final = "cleanup.policy"


class SettingQuestions:
    """About values, lists, levels and repeated ids."""

    def __init__(self, draw: Drawing) -> None:
        self._draw = draw

    def settings(self, image: MetadataImage) -> Question | None:
        if OWN not in image.topics.ids:
            return None
        broker = str(self._draw.rng.choice(brokers_of(image) or [STRANGER]))
        kind, name, setting, value, errors = self._draw.rng.choice(
            (
                (TOPIC, OWN, "retention.ms", "7", {None}),
                (TOPIC, OWN, "retention.ms", "soon", {"INVALID_CONFIG"}),
                (TOPIC, OWN, "no.such.setting", "7", {"INVALID_CONFIG"}),
                (TOPIC, "contrary.nobody", "retention.ms", "7", {"UNKNOWN_TOPIC_OR_PARTITION"}),
                (TOPIC, "a name", "retention.ms", "soon", {"INVALID_TOPIC_EXCEPTION"}),
                (BROKER, str(STRANGER), "contrary", "7", {"BROKER_ID_NOT_REGISTERED"}),
                (BROKER, "", "log.cleaner.threads", "some", {"INVALID_REQUEST"}),
                (BROKER, broker, "min.insync.replicas", "1", set()),
            )
        )
        command = _sets(ResourceChange(kind, name, (ConfigChange(setting, ConfigOperation.SET, value),)))

        def right(at: MetadataImage) -> Errors:
            if setting == "min.insync.replicas":
                return {"INVALID_CONFIG"} if at.features.get(ELIGIBLE_LEADER_REPLICAS_VERSION) else set()
            return {*errors} if OWN in at.topics.ids or name != OWN else set()

        if setting == "min.insync.replicas" and not image.features.get(ELIGIBLE_LEADER_REPLICAS_VERSION):
            return None  # it would be set
        return Question(command, right, lambda after, _: _unset(after, kind, name, setting, value))

    def setting_again(self, image: MetadataImage) -> Question | None:
        """Set what is set already: nothing is written."""
        known = sorted(settings_of(image, TOPIC, OWN).items())
        if not known:
            return None
        setting, value = self._draw.rng.choice(known)
        command = _sets(ResourceChange(TOPIC, OWN, (ConfigChange(setting, ConfigOperation.SET, value),)))
        return Question(command, lambda at: {None} if OWN in at.topics.ids else set())

    def list_(self, image: MetadataImage) -> Question | None:
        """Append to a list, or take something from it."""
        if OWN not in image.topics.ids:
            return None
        before = settings_of(image, TOPIC, OWN).get(OWN_LIST, "delete")
        operation = ConfigOperation.SUBTRACT if "compact" in before else ConfigOperation.APPEND
        expected = {"delete"} if "compact" in before else {"delete", "compact"}
        command = _sets(ResourceChange(TOPIC, OWN, (ConfigChange(OWN_LIST, operation, "compact"),)))

        def shows(after: MetadataImage, _outcome: object) -> str | None:
            now = settings_of(after, TOPIC, OWN).get(OWN_LIST, "delete")
            return None if {*now.split(",")} == expected else f"{OWN_LIST} is {now}"

        return Question(command, always(None), shows)

    def all_or_nothing(self, image: MetadataImage) -> Question | None:
        """Ask for two settings at once, one of which is refused."""
        if OWN not in image.topics.ids:
            return None
        self._draw.asked += 1
        good = ResourceChange(
            TOPIC, OWN, (ConfigChange("flush.ms", ConfigOperation.SET, str(self._draw.asked)),)
        )
        bad = ResourceChange(TOPIC, "contrary.nobody", good.changes)
        command = IncrementalAlterConfigs(resources=(good, bad), validate_only=False, all_or_nothing=True)
        return Question(command, always("OPERATION_NOT_ATTEMPTED", "UNKNOWN_TOPIC_OR_PARTITION"))

    def level(self, _image: MetadataImage) -> Question | None:
        update = FeatureUpdate(METADATA_VERSION, 99, UpgradeType.UPGRADE)
        command = UpdateFeatures(updates=(update,), validate_only=False)
        return Question(
            command,
            always(
                "INVALID_UPDATE_VERSION", "INVALID_REQUEST", "UNSUPPORTED_VERSION", "FEATURE_UPDATE_FAILED"
            ),
        )

    def used_id(self, image: MetadataImage) -> Question | None:
        """Ask for one thing, and then for another under the same id, while the first answer is kept."""
        if OWN not in image.topics.ids:
            return None
        self._draw.asked += 1
        newest = self._draw.ids[-1] if self._draw.ids else None
        command = _sets(
            ResourceChange(
                TOPIC, OWN, (ConfigChange("segment.ms", ConfigOperation.SET, str(10**6 + self._draw.asked)),)
            )
        )
        if newest is not None and self._draw.rng.random() < 0.5:
            self._draw.ids.clear()
            known = self._draw.world.properties.requests.get(newest, ())
            if not known or self._draw.world.properties.may_be_evicted(known[-1] - 100):
                return None
            return Question(command, always("INVALID_REQUEST"), request_id=newest)
        return Question(command, always(None), request_id=uuid((CLIENT << 32) + self._draw.asked))


def _sets(change: ResourceChange) -> IncrementalAlterConfigs:
    return IncrementalAlterConfigs(resources=(change,), validate_only=False)


def _unset(image: MetadataImage, kind: int, name: str, setting: str, value: str) -> str | None:
    found = settings_of(image, kind, name).get(setting)
    return None if found == value else f"{setting} of {name} is {found}"
