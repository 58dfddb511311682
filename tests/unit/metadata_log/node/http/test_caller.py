"""Edge: under which names a node answers, and which pages' requests it takes."""

import ssl
from contextlib import nullcontext

import pytest
from aiohttp.test_utils import make_mocked_request

from metadata_log.errors import ForeignCaller, InvalidRequest, MetadataError, UnsupportedMediaType
from metadata_log.node.http.caller import HOSTS_KEPT, OwnNames

NAMES = OwnNames(("10.0.0.1", "controller-1.example", "0.0.0.0"))


@pytest.mark.parametrize(
    ("host", "is_own"),
    [
        ("localhost", True),
        ("LOCALHOST:9091", True),
        ("a.localhost:1", True),
        ("controller-1.example", True),
        ("Controller-1.Example.:9091", True),
        ("192.0.2.7:9091", True),
        ("[::1]:9091", True),
        ("[fe80::1]", True),
        ("rebound.example:9091", False),
        ("x.controller-1.example", False),
        ("notlocalhost", False),
        ("[fe80::1%eth0]:9091", True),
        ("127.0.0.1.example", False),
        ("127.0.0.1%rebound.example", False),
        ("127.0.0.1%rebound.example:9091", False),
        ("localhost:port", False),
        ("a@localhost", False),
        ("localhost/a", False),
        ("", False),
    ],
)
def test_a_host_names_this_node_or_another(host: str, is_own: bool) -> None:
    assert NAMES.is_own(host) is is_own


def test_the_hosts_that_are_remembered_are_bounded_and_change_no_answer() -> None:
    names = OwnNames(("controller-1.example",))
    for number in range(3 * HOSTS_KEPT):
        for _ in range(2):
            assert names.is_own(f"192.0.2.{number}:9091")
            assert not names.is_own(f"rebound-{number}.example")
        assert len(names._known) <= HOSTS_KEPT


def refusal(method: str, *headers: tuple[str, str]) -> type[MetadataError] | None:
    try:
        NAMES.check(make_mocked_request(method, "/v1/topics", headers=headers))
    except MetadataError as error:
        return type(error)
    return None


HOST = ("Host", "localhost:9091")


@pytest.mark.parametrize(
    ("headers", "refused"),
    [
        ((HOST,), None),
        ((), InvalidRequest),
        ((HOST, HOST), InvalidRequest),
        ((("Host", "rebound.example"),), ForeignCaller),
        ((HOST, ("Origin", "http://localhost:9091")), None),
        ((HOST, ("Origin", "http://LOCALHOST:9091")), None),
        ((HOST, ("Origin", "http://localhost")), ForeignCaller),
        ((HOST, ("Origin", "http://localhost:9092")), ForeignCaller),
        ((HOST, ("Origin", "http://page.example")), ForeignCaller),
        ((HOST, ("Origin", "null")), ForeignCaller),
        ((HOST, ("Origin", "")), ForeignCaller),
        ((HOST, ("Origin", "file://localhost:9091")), ForeignCaller),
        ((HOST, ("Origin", "http://localhost:9091"), ("Origin", "http://page.example")), ForeignCaller),
        ((HOST, ("Sec-Fetch-Site", "same-origin"), ("Sec-Fetch-Mode", "cors")), None),
        ((HOST, ("Sec-Fetch-Site", "none"), ("Sec-Fetch-Mode", "navigate")), None),
        ((HOST, ("Sec-Fetch-Site", "cross-site"), ("Sec-Fetch-Mode", "no-cors")), ForeignCaller),
        ((HOST, ("Sec-Fetch-Site", "same-site"), ("Sec-Fetch-Mode", "cors")), ForeignCaller),
        ((HOST, ("Sec-Fetch-Site", "unheard-of")), ForeignCaller),
        ((("Host", "localhost"), ("Origin", "http://localhost:80")), None),
        ((("Host", "localhost"), ("Origin", "http://localhost")), None),
        ((("Host", "localhost"), ("Origin", "https://localhost:443")), None),
        ((("Host", "localhost"), ("Origin", "https://localhost:80")), ForeignCaller),
    ],
)
def test_a_page_of_another_address_asks_nothing(
    headers: tuple[tuple[str, str], ...], refused: type[MetadataError] | None
) -> None:
    assert refusal("GET", *headers) is refused
    assert refusal("POST", *headers) is refused


@pytest.mark.parametrize("host", ["localhost", "localhost:443"])
@pytest.mark.parametrize(
    ("origin", "is_refused"),
    [
        ("https://localhost", False),
        ("https://localhost:443", False),
        ("https://localhost:9091", True),
        ("http://localhost", True),
        ("http://localhost:443", True),
    ],
)
def test_a_page_in_the_clear_asks_nothing_of_the_same_host_under_tls(
    host: str, origin: str, *, is_refused: bool
) -> None:
    headers = {"Host": host, "Origin": origin}
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    request = make_mocked_request("POST", "/v1/topics", headers=headers, sslcontext=context)
    with pytest.raises(ForeignCaller) if is_refused else nullcontext():
        NAMES.check(request)


@pytest.mark.parametrize(
    "sent_as", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"]
)
def test_what_a_form_may_send_changes_nothing_even_without_a_body(sent_as: str) -> None:
    assert refusal("POST", HOST, ("Content-Type", f"{sent_as}; charset=utf-8")) is UnsupportedMediaType
    assert refusal("GET", HOST, ("Content-Type", sent_as)) is None


@pytest.mark.parametrize("name", ["Authorization", "X-Request-Id", "Content-Type"])
def test_what_may_be_there_once_is_refused_twice_by_name(name: str) -> None:
    headers = [HOST, (name, "application/json"), (name.lower(), "application/msgpack")]
    with pytest.raises(InvalidRequest, match=f"one {name} at most, and this one has 2"):
        NAMES.check(make_mocked_request("GET", "/v1/topics", headers=headers))
    assert refusal("GET", *headers[:2]) is None
