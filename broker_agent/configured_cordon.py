"""Pure: the log directories that the setting `cordoned.log.dirs` of a broker names, as Kafka's brokers read it.

The setting is a list of paths, or `*` for all of them. One broker's own value counts before the cluster-wide one. Source:
KIP-1066.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from metadata_log.ids import BrokerId, Uuid
from metadata_log.image.metadata_image import Delta, MetadataImage
from metadata_log.records.configs import BROKER

CORDONED_LOG_DIRS: Final = "cordoned.log.dirs"
ALL: Final = "*"


class ConfiguredCordon:
    """Reports the directories of one broker that its settings cordon, whenever these change."""

    def __init__(
        self,
        broker_id: BrokerId,
        *,
        directories: Callable[[], Mapping[str, Uuid]],
        cordon: Callable[[Iterable[Uuid]], None],
    ) -> None:
        """`directories` returns the broker's log directories by path; `cordon` is told all that are to be cordoned."""
        self._resources = (BROKER, str(broker_id)), (BROKER, "")
        self._directories = directories
        self._cordon = cordon
        self._cordoned: frozenset[Uuid] = frozenset()

    def on_delta(self, _before: MetadataImage, after: MetadataImage, delta: Delta | None) -> None:
        """Read the setting again if it may have changed; called for every change of the image."""
        if delta is not None and not any(
            (kind, name, CORDONED_LOG_DIRS) in delta.configs for kind, name in self._resources
        ):
            return
        settings = [found for each in self._resources if (found := after.configs.get(each)) is not None]
        values = (one.get(CORDONED_LOG_DIRS) for one in settings)
        value = next((value for value in values if value is not None), "")
        named, directories = {path.strip() for path in value.split(",")}, self._directories()
        cordoned = frozenset(
            directory for path, directory in directories.items() if ALL in named or path in named
        )
        if cordoned != self._cordoned:
            self._cordoned = cordoned
            self._cordon(cordoned)
