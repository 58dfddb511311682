"""Pure: how addresses are read and written."""

import pytest

from metadata_log.node.addresses import (
    HostPort,
    address_text,
    is_address,
    is_host,
    is_node_url,
    is_reachable,
    read_address,
    read_url,
)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("localhost:9091", ("localhost", 9091)),
        ("[::1]:0", ("::1", 0)),
        ("0.0.0.0:65535", ("0.0.0.0", 65535)),
    ],
)
def test_an_address_is_read_and_written_alike(text: str, address: HostPort) -> None:
    assert read_address(text) == address
    assert read_url(f"http://{text}") == address
    assert address_text(address) == text


@pytest.mark.parametrize(
    "text",
    ["", "h", ":1", "h:", "h:x", "h:65536", "u@h:1", "h:1/", "h:1?", "::1:1", "[::1:1", "a..b:1", "h\t:1"],
)
def test_what_is_no_address_is_refused(text: str) -> None:
    assert not is_address(text)
    with pytest.raises(ValueError, match=r"."):
        read_url(f"http://{text}")


@pytest.mark.parametrize("url", ["h:1", "ftp://h:1", "//h:1", "http:/h:1"])
def test_a_url_says_how_to_speak(url: str) -> None:
    with pytest.raises(ValueError, match="http://HOST:PORT"):
        read_url(url)


@pytest.mark.parametrize(
    ("address", "is_one"), [(("h", 1), True), (("h", 0), False), (("::", 1), False), (("*", 1), False)]
)
def test_wildcards_and_free_ports_cannot_be_dialled(address: HostPort, is_one: bool) -> None:
    assert is_reachable(address) is is_one


@pytest.mark.parametrize(
    ("url", "is_one"),
    [
        ("http://127.0.0.1:9091", True),
        ("https://node.example:1", True),
        ("http://[::1]:9091", True),
        ("http://h:9091/", False),
        ("http://h:9091/v1", False),
        ("http://u@h:9091", False),
        ("ftp://h:9091", False),
        ("h:9091", False),
        ("http://h:0", False),
        ("http://h:x", False),
        ("http://", False),
        ("http://a..b:80", False),
        ("http://ho st:80", False),
        ("http://ho\tst:80", False),
        ("http://h:80?", False),
    ],
)
def test_what_a_nodes_url_is(url: str, is_one: bool) -> None:
    assert is_node_url(url) is is_one


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        ("localhost", True),
        ("c4_a.example.", True),
        ("bücher.example", True),
        ("127.0.0.1", True),
        ("::1", True),
        ("fe80::1%eth0", True),
        ("x" * 63, True),
        ("x" * 64, False),
        ("ctl4..example", False),
        (".example", False),
        (".", False),
        ("", False),
        ("ho st", False),
        ("ho\tst", False),
        ("ho\x00st", False),
        ("ho\u00a0st", False),
        ("\udc80", False),
    ],
)
def test_what_a_host_may_be_called(text: str, is_one: bool) -> None:
    assert is_host(text) is is_one
