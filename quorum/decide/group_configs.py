"""Pure: the settings of groups and of subscriptions to clients' metrics, and the values that Kafka 4.3.1 accepts for them.

Brokers alone read these settings. Bounds that a broker's own file may move are at their defaults here. Source: GroupConfig,
GroupCoordinatorConfig, ShareGroupConfig and ClientMetricsConfigs of Kafka 4.3.1 (KIP-848, KIP-932, KIP-714, KIP-1071).
"""

import re
from collections.abc import Callable, Mapping
from typing import Final

from metadata_log.errors import InvalidConfig, InvalidRequest
from metadata_log.kafka_settings import CLIENT_METRICS_SETTINGS
from quorum.decide.config_types import Check, boolean, integer, items_of, one_of

_DURATION: Final = re.compile(
    r"(?P<sign>[-+]?)P(?:(?P<D>[-+]?\d{1,14})D)?"
    r"(?P<T>T(?:(?P<H>[-+]?\d{1,15})H)?(?:(?P<M>[-+]?\d{1,17})M)?(?:(?P<S>[-+]?\d{1,18})(?:[.,]\d{0,9})?S)?)?",
    re.IGNORECASE | re.ASCII,
)
_SECONDS: Final = {"D": 86_400, "H": 3_600, "M": 60, "S": 1}
_BY_DURATION: Final = "by_duration:"


def _offset_reset(value: str) -> str | None:
    is_named = value in ("latest", "earliest")
    is_by_duration = value.startswith(_BY_DURATION) and _is_duration(value.removeprefix(_BY_DURATION))
    if is_named or is_by_duration:
        return None
    return "neither earliest nor latest nor by_duration:PnDTnHnMn.nS"


def _is_duration(text: str) -> bool:
    """Return whether Java's Duration reads a text, as one that is not negative."""
    match = _DURATION.fullmatch(text)
    if match is None or (match["T"] or "").upper() == "T" or not any(match[unit] for unit in _SECONDS):
        return False
    seconds = sum(int(match[unit]) * count for unit, count in _SECONDS.items() if match[unit])
    return (-seconds if match["sign"] == "-" else seconds) >= 0


_GROUP_CHECKS: Final[Mapping[str, Check]] = {
    "consumer.assignment.interval.ms": integer(0, 15_000),
    "consumer.heartbeat.interval.ms": integer(5_000, 15_000),
    "consumer.session.timeout.ms": integer(45_000, 60_000),
    "share.assignment.interval.ms": integer(0, 15_000),
    "share.auto.offset.reset": _offset_reset,
    "share.delivery.count.limit": integer(2, 10),
    "share.heartbeat.interval.ms": integer(5_000, 15_000),
    "share.isolation.level": one_of("read_committed", "read_uncommitted"),
    "share.partition.max.record.locks": integer(100, 4_000),
    "share.record.lock.duration.ms": integer(15_000, 60_000),
    "share.renew.acknowledge.enable": boolean,
    "share.session.timeout.ms": integer(45_000, 60_000),
    "streams.assignment.interval.ms": integer(0, 15_000),
    "streams.heartbeat.interval.ms": integer(5_000, 15_000),
    "streams.initial.rebalance.delay.ms": integer(0, 0x7FFF_FFFF),
    "streams.num.standby.replicas": integer(0, 2),
    "streams.session.timeout.ms": integer(45_000, 60_000),
}
_MATCHED: Final = frozenset(
    f"client_{what}"
    for what in ("id", "instance_id", "software_name", "software_version", "source_address", "source_port")
)
_INTERVAL_MS: Final = (100, 3_600_000)


def check_group_configs(group: str, settings: Mapping[str, str]) -> None:
    """Check all settings of a group.

    Raises:
        InvalidRequest: the group has no name.
        InvalidConfig: names the first setting that is wrong.
    """
    if not group:
        raise InvalidRequest("the settings of a group need its name: there are none of all groups")
    for name, value in sorted(settings.items()):
        if name not in _GROUP_CHECKS:
            raise InvalidConfig(f"{name!r} is no setting of a group")
        _judge(name, value, _GROUP_CHECKS[name])


def check_client_metrics(subscription: str, settings: Mapping[str, str]) -> None:
    """Check all settings of a subscription to clients' metrics.

    Raises:
        InvalidRequest: the subscription has no name, a setting is not known, or the interval is out of bounds.
        InvalidConfig: names the first setting that is wrong.
    """
    if not subscription:
        raise InvalidRequest("a subscription to clients' metrics needs a name")
    for name, value in sorted(settings.items()):
        if name not in CLIENT_METRICS_SETTINGS:
            raise InvalidRequest(f"{name!r} is no setting of a subscription to clients' metrics")
        _judge(name, value, _METRICS_CHECKS[name])
        low, high = _INTERVAL_MS
        if name == "interval.ms" and not low <= int(value) <= high:
            raise InvalidRequest(f"{name} = {value} is not from {low} to {high}")


def _judge(name: str, value: str, check: Check) -> None:
    fault = check(value.strip())
    if fault is not None:
        raise InvalidConfig(f"{name} = {value!r} is {fault}")


def _each(check: Callable[[str], str | None]) -> Check:
    """Return a check of lists: no item is empty, and each passes."""

    def check_items(value: str) -> str | None:
        items = items_of(value)
        if "" in items:
            return "a list with an empty item"
        return next((fault for item in items if (fault := check(item)) is not None), None)

    return check_items


def _pattern(item: str) -> str | None:
    """Return what is wrong with PARAMETER=REGULAR_EXPRESSION. Java leaves out what is empty after the last sign."""
    parameter, *patterns = item.rstrip("=").split("=")
    if parameter.strip() not in _MATCHED or len(patterns) != 1:
        return "no list of PARAMETER=PATTERN"
    try:
        re.compile(patterns[0].strip())
    except (re.error, OverflowError, RecursionError):
        return "a list with a pattern that is no regular expression"
    finally:
        re.purge()  # what a client sends is not kept: a long pattern takes a megabyte
    return None


_METRICS_CHECKS: Final[Mapping[str, Check]] = {
    "interval.ms": integer(-0x8000_0000, 0x7FFF_FFFF),
    "match": _each(_pattern),
    "metrics": _each(lambda _: None),
}
