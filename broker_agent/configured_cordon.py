"""Pure: the log directories that the setting `cordoned.log.dirs` of a broker names, as Kafka's brokers read it.

The setting is a list of paths, or `*` for all of them. One broker's own value counts before the cluster-wide one. Source:
KIP-1066.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
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
        on_unknown: Callable[[Sequence[str]], None],
    ) -> None:
        """`directories` returns the broker's log directories by path; `cordon` is told all that are to be cordoned.

        `on_unknown` is told the paths in the broker's own setting that are no directories of it: they cordon nothing. The
        cluster-wide setting may mean those of other brokers.
        """
        self._resources = (BROKER, str(broker_id)), (BROKER, "")
        self._directories = directories
        self._cordon = cordon
        self._on_unknown = on_unknown
        self._unknown: list[str] = []
        self._cordoned: frozenset[Uuid] = frozenset()

    def on_delta(self, _before: MetadataImage, after: MetadataImage, delta: Delta | None) -> None:
        """Read the setting again if it may have changed; called for every change of the image."""
        if delta is not None and not any(
            (kind, name, CORDONED_LOG_DIRS) in delta.configs for kind, name in self._resources
        ):
            return
        own, of_all = (_value(after, each) for each in self._resources)
        value = next((value for value in (own, of_all) if value is not None), "")
        named, directories = {path.strip() for path in value.split(",")}, self._directories()
        unknown = [] if own is None else sorted(named - {*directories, ALL, ""})
        if unknown != self._unknown:
            self._unknown = unknown
            if unknown:
                self._on_unknown(unknown)
        cordoned = frozenset(
            directory for path, directory in directories.items() if ALL in named or path in named
        )
        if cordoned != self._cordoned:
            self._cordoned = cordoned
            self._cordon(cordoned)


def _value(image: MetadataImage, resource: tuple[int, str]) -> str | None:
    settings = image.configs.get(resource)
    return None if settings is None else settings.get(CORDONED_LOG_DIRS)
