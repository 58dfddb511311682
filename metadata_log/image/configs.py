"""Pure: the settings as the log has made them. Tests: tests/property/test_folding.py."""

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias

import immutables

from metadata_log.digest import hex_of_text
from metadata_log.image.subject import Builders, SubjectBuilder
from metadata_log.image.topics import TopicsBuilder
from metadata_log.items import Items
from metadata_log.orders import in_parts
from metadata_log.records.configs import (
    BROKER,
    CLIENT_METRICS,
    GROUP,
    MIN_IN_SYNC_REPLICAS,
    TOPIC,
    ConfigRecord,
    is_sensitive,
)
from metadata_log.records.declaration import mask, shown
from metadata_log.records.registry import Record
from metadata_log.records.topics import RemoveTopicRecord, TopicTombstoneRecord

if TYPE_CHECKING:
    from metadata_log.image.metadata_image import Delta

Resource: TypeAlias = tuple[int, str]
"""resource_type and resource_name, as in ConfigRecord."""
ConfigsImage: TypeAlias = "immutables.Map[Resource, immutables.Map[str, str]]"
"""The settings of each resource that has any; a secret with a mask key is a `Secret`."""


class Secret(str):
    """The value of a secret setting, beside the key under which it is masked. It equals its text."""

    __slots__ = ("mask_key",)
    mask_key: bytes

    def __new__(cls, text: str, mask_key: bytes) -> Self:
        made = super().__new__(cls, text)
        made.mask_key = mask_key
        return made


def value_of(record: ConfigRecord) -> str | None:
    """Return the value that a record gives, with the key of its mask; None: it deletes the setting."""
    if record.value is None or record.mask_key is None:
        return record.value
    return Secret(record.value, record.mask_key)


def mask_key_of(value: str) -> bytes | None:
    return value.mask_key if isinstance(value, Secret) else None


class ConfigsBuilder(SubjectBuilder[ConfigsImage]):
    FIELD = "configs"

    def __init__(self, before: ConfigsImage, others: Builders) -> None:
        super().__init__(before, others)
        self._configs = before.mutate()
        self._touched: set[tuple[int, str, str]] = set()

    def put(self, record: ConfigRecord) -> None:
        resource = (record.resource_type, record.resource_name)
        if record.resource_type == TOPIC:
            topics = self.others.of(TopicsBuilder)
            topics.id_of(record.resource_name)  # KeyError where it does not exist
            if record.name == MIN_IN_SYNC_REPLICAS:
                topics.set_min_isr(record.resource_name, record.value)
        settings = self._configs.get(resource) or immutables.Map()
        value = value_of(record)
        if value is not None:
            settings = settings.set(record.name, value)
        elif record.name in settings:
            settings = settings.delete(record.name)
        if settings:
            self._configs[resource] = settings
        else:
            self._configs.pop(resource, None)
        self._touched.add((*resource, record.name))

    def remove_topic(self, record: RemoveTopicRecord | TopicTombstoneRecord) -> None:
        name = self.others.of(TopicsBuilder).name_of(record.topic_id)
        if name is None:  # deleted before, and its settings with it
            return
        settings = self._configs.pop((TOPIC, name), None)
        self._touched.update((TOPIC, name, setting) for setting in settings or ())

    STATES = {ConfigRecord: put}  # noqa: RUF012 (a ClassVar of the base)
    CHANGES = {RemoveTopicRecord: remove_topic, TopicTombstoneRecord: remove_topic}  # noqa: RUF012

    def finish(self) -> ConfigsImage:
        return self._configs.finish()

    def delta(self) -> dict[str, Any]:
        return {"configs": frozenset(self._touched)}

    @staticmethod
    def touched_lines(image: ConfigsImage, touched: "Delta") -> Iterator[str]:
        for resource_type, resource_name, name in touched.configs:
            settings = image.get((resource_type, resource_name))
            if settings is not None and name in settings:
                yield config_line(config_record(resource_type, resource_name, name, settings[name]))

    @staticmethod
    def lines(image: ConfigsImage) -> Iterator[str]:
        for (resource_type, resource_name), settings in image.items():
            for name, value in settings.items():
                yield config_line(config_record(resource_type, resource_name, name, value))

    @staticmethod
    def records(image: ConfigsImage) -> Iterator[Record]:
        for resource_type, resource_name in in_parts(image):
            settings = image[resource_type, resource_name]
            for name in sorted(settings):
                yield config_record(resource_type, resource_name, name, settings[name])

    @staticmethod
    def view(image: ConfigsImage) -> dict[str, Any]:
        count = sum(len(settings) for settings in image.values())
        items = (item for resource in in_parts(image) for item in configs_items(image, *resource))
        return {"configs": Items(count, items)}


def with_settings(
    image: ConfigsImage, resource: Resource, settings: Iterable[tuple[str, str]]
) -> ConfigsImage:
    """Return the settings as they are once a resource without any has these."""
    return image.set(resource, immutables.Map(settings))


def config_record(resource_type: int, resource_name: str, name: str, value: str) -> ConfigRecord:
    """Return the record that gives a setting its value in an image."""
    return ConfigRecord(resource_type, resource_name, name, str(value), mask_key_of(value))


def config_line(record: ConfigRecord) -> str:
    """Return the digest line of a setting, a secret masked."""
    return line_of_shown_config(shown(record))


def line_of_shown_config(record: ConfigRecord) -> str:
    """Return the digest line of a setting as it is shown."""
    resource_type, resource_name, name, value, _ = record
    assert value is not None, "a setting that is there has a value"
    return f"c|{resource_type}|{hex_of_text(resource_name)}|{hex_of_text(name)}|{hex_of_text(value)}"


def configs_items(image: ConfigsImage, resource_type: int, resource_name: str) -> list[dict[str, Any]]:
    settings: Mapping[str, str] = image.get((resource_type, resource_name)) or {}
    return settings_items(resource_type, resource_name, shown_settings(resource_type, settings))


def settings_items(resource_type: int, resource_name: str, masked: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return settings whose secrets are masked already as HTTP lists them."""
    return [
        {
            "resource_type": type_text(resource_type),
            "resource_name": resource_name,
            "name": name,
            "value": value,
        }
        for name, value in masked.items()
    ]


TYPE_TEXTS: Final = {TOPIC: "topic", BROKER: "broker", CLIENT_METRICS: "client_metrics", GROUP: "group"}


def type_text(resource_type: int) -> str:
    return TYPE_TEXTS.get(resource_type, str(resource_type))


def shown_settings(resource_type: int, settings: Mapping[str, str]) -> dict[str, str]:
    """Return the values of a resource's settings by name, in order of name, secrets masked."""
    return {
        name: mask(str(value), mask_key_of(value))
        if is_sensitive(resource_type, name) or mask_key_of(value) is not None
        else str(value)
        for name, value in sorted(settings.items())
    }
