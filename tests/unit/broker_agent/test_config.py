"""Pure: impossible settings are refused by name."""

from dataclasses import replace
from pathlib import Path

import pytest

from broker_agent.config import BrokerSettings
from metadata_log.errors import InvalidSettings
from metadata_log.ids import BrokerId
from metadata_log.records.brokers import BrokerEndpoint

GOOD = BrokerSettings(
    cluster_id="A" * 22,
    broker_id=BrokerId(11),
    data_dir=Path("data"),
    controllers=("http://127.0.0.1:8081", "http://127.0.0.1:8082"),
    listen_http=("127.0.0.1", 9092),
)


def test_good_settings_pass() -> None:
    GOOD.validate()
    replace(GOOD, rack="r1", controllers=("https://c:1",)).validate()


def test_clients_are_told_what_is_advertised() -> None:
    assert replace(GOOD, listen_http=("h", 0)).endpoints(77) == (BrokerEndpoint("PLAINTEXT", "h", 77, 0),)
    external = BrokerEndpoint("EXTERNAL", "b11.example.org", 9093, 1)
    told = replace(
        GOOD, listen_http=("0.0.0.0", 9092), advertised_http=("b11", 80), advertised_listeners=(external,)
    )
    told.validate()
    assert told.endpoints(9092) == (BrokerEndpoint("PLAINTEXT", "b11", 80, 0), external)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"cluster_id": "short"}, "cluster_id"),
        ({"broker_id": -1}, "broker_id"),
        ({"controllers": ()}, "controllers"),
        ({"controllers": ("http://c:1",) * 2}, "twice"),
        ({"controllers": tuple(f"http://c:{n}" for n in range(11))}, "controllers"),
        ({"controllers": ("c:1",)}, "no http"),
        ({"controllers": ("http://c:1/",)}, "trailing slash"),
        ({"listen_http": ("", 1)}, "listen.http"),
        ({"listen_http": ("h", 70_000)}, "listen.http"),
        ({"listen_http": ("0.0.0.0", 9092)}, "can reach"),
        ({"advertised_http": ("0.0.0.0", 9092)}, "advertised.http"),
        ({"advertised_http": ("b11", 0)}, "advertised.http"),
        ({"advertised_http": ("127.0.0.1", 9093)}, "port 9092, but .* port 9093"),
        ({"advertised_listeners": (BrokerEndpoint("PLAINTEXT", "b11", 1, 0),)}, "another listener"),
        ({"advertised_listeners": (BrokerEndpoint("X", "b11", 1, 1),) * 2}, "listeners.X"),
        ({"advertised_listeners": (BrokerEndpoint("X", "::", 1, 1),)}, "can reach"),
        ({"advertised_listeners": (BrokerEndpoint("", "b11", 1, 1),)}, "name"),
        ({"rack": ""}, "rack"),
        ({"rack": "ä" * 200}, "rack"),
        ({"registration_timeout_ms": 0}, "registration_timeout_ms"),
        ({"shutdown_timeout_ms": 10**9}, "shutdown_timeout_ms"),
    ],
)
def test_what_cannot_be_is_named(change: dict[str, object], named: str) -> None:
    with pytest.raises(InvalidSettings, match=named):
        replace(GOOD, **change).validate()  # type: ignore[arg-type]
