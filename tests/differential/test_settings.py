"""Edge: the settings that we say Kafka knows are those of Kafka 4.3.1's definitions, with types and defaults (B83, B98)."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pytest

from metadata_log import kafka_settings
from metadata_log.image.configs import TYPE_TEXTS
from metadata_log.kafka_settings import INTERNAL_SEGMENT_BYTES, STATIC, Known
from metadata_log.records.configs import BROKER, CLIENT_METRICS, GROUP, TOPIC, is_sensitive
from tests.differential import kafka
from tests.unit.quorum.decide.test_described_configs import DEFAULTS

pytestmark = pytest.mark.slow
TABLES: Final[Mapping[int, Mapping[str, Known]]] = {
    TOPIC: kafka_settings.TOPIC_SETTINGS,
    BROKER: kafka_settings.BROKER_SETTINGS,
    CLIENT_METRICS: kafka_settings.CLIENT_METRICS_SETTINGS,
    GROUP: kafka_settings.GROUP_SETTINGS,
}
NAMES: Final = (
    "no.such.setting",
    "SSL.KEY.PASSWORD",
    "x.sasl.jaas.config",
    "listener.name.x.num.io.threads",
    "listener.name.x.no.such.setting",
    "listener.name..ssl.key.password",
    "listener.name.x.y.ssl.protocol",
    "listener.name.x.node.id",
    "listener.name.x.sasl.jaas.config",
    "listener.name.x.scram-sha-256.sasl.jaas.config",
    "listener.name.x.plain.connections.max.reauth.ms",
    "listener.name.x.plain.sasl.server.callback.handler.class",
    "listener.name.x.plain.num.io.threads",
    "Listener.name.x.ssl.protocol",
)


@pytest.fixture(scope="module")
def answers() -> dict[int, Any]:
    """Return what Kafka knows of each type of resource, and the types of all names in question."""
    names = _names()
    asked = [{"of": TYPE_TEXTS[kind], "names": names} for kind in TABLES]
    return dict(zip(TABLES, kafka.answers(kafka.built(), asked, program="Settings"), strict=True))


def _names() -> Sequence[str]:
    known = {name for table in TABLES.values() for name in table} | STATIC
    return sorted({*NAMES, *known, *(f"listener.name.x.{name}" for name in known)})


@pytest.mark.parametrize("kind", TABLES)
def test_names_types_and_defaults_are_kafkas(answers: dict[int, Any], kind: int) -> None:
    known = answers[kind]["known"]
    not_described = {TOPIC: {INTERNAL_SEGMENT_BYTES}, BROKER: STATIC}.get(kind, frozenset())
    assert {*known} == {*TABLES[kind]} | not_described
    assert {name: [*each] for name, each in TABLES[kind].items()} == {
        name: known[name] for name in TABLES[kind]
    }


@pytest.mark.parametrize("kind", TABLES)
def test_what_is_a_secret_is_kafkas_decision(answers: dict[int, Any], kind: int) -> None:
    """As KafkaConfig.maybeSensitive: no type, or PASSWORD."""
    types = answers[kind]["types"]
    wrong = [
        name
        for name, known in zip(_names(), types, strict=True)
        if is_sensitive(kind, name) is not (known in (None, "PASSWORD"))
    ]
    assert not wrong
    assert {None} < {*types}


def test_b98_the_numbers_that_ours_are_compared_with_are_kafkas(answers: dict[int, Any]) -> None:
    """B98: beside them how much a broker lets a partition lose, and that leaderships are given back."""
    known = answers[BROKER]["known"]
    assert {name: int(known[name][1]) for name in DEFAULTS} == {
        name: kafkas for name, (_, kafkas) in DEFAULTS.items()
    }
    for name, default in (
        ("unclean.leader.election.enable", "false"),
        ("auto.leader.rebalance.enable", "true"),
        ("controlled.shutdown.enable", "true"),
        ("metadata.log.dir", None),
    ):
        assert known[name][1] == default
    assert "leader.imbalance.per.broker.percentage" not in known
