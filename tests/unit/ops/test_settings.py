"""Edge: settings files: written and read back, the examples, and errors that name file and key."""

import re
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

import ops
from broker_agent.config import BrokerSettings
from metadata_log.errors import InvalidSettings
from metadata_log.ids import BrokerId, NodeId, Uuid
from metadata_log.node.disk.data_directory import Role
from metadata_log.node.identity.credentials import TlsFiles
from metadata_log.node.identity.rights import ByAcls
from metadata_log.records.brokers import BrokerEndpoint
from ops import settings_values
from ops.settings import (
    BOTH,
    GROUPS,
    hosts_to_certify,
    keys_of,
    load_broker_settings,
    load_controller_settings,
    load_for_format,
)
from ops.settings_writing import broker_toml, controller_toml
from quorum.node.config import (
    AclSettings,
    ControllerSettings,
    FeatureSettings,
    KafkaSettings,
    LogSettings,
    SnapshotSettings,
    TimingSettings,
    TopicSettings,
    VoterSettings,
)
from tests.settings_page import PAGE, page

EXAMPLES = Path(ops.__file__).parent / "config"
CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"


def controller(data_dir: Path) -> ControllerSettings:
    voters = tuple(
        VoterSettings(
            id=NodeId(node_id),
            raft=("127.0.0.1", 9190 + node_id),
            http=f"http://127.0.0.1:{9090 + node_id}",
            directory_id=Uuid(bytes([node_id] * 16)),
        )
        for node_id in (1, 2, 3)
    )
    return ControllerSettings(
        cluster_id=CLUSTER_ID,
        node_id=NodeId(2),
        data_dir=data_dir,
        listen_http=("127.0.0.1", 9092),
        listen_raft=("127.0.0.1", 9192),
        voters=voters,
        timing=TimingSettings(session_timeout_ms=3_000),
        log=LogSettings(retention_ms=86_400_000),
        snapshot=SnapshotSettings(keep=3, age_ms=0),
    )


def broker(data_dir: Path) -> BrokerSettings:
    return BrokerSettings(
        cluster_id=CLUSTER_ID,
        broker_id=BrokerId(11),
        data_dir=data_dir,
        rack='r"1\n',
        controllers=("http://127.0.0.1:9091", "http://[::1]:9092"),
        listen_http=("::1", 9101),
        shutdown_timeout_ms=5_000,
    )


def test_settings_survive_the_way_to_a_file_and_back(tmp_path: Path) -> None:
    file = tmp_path / "node.toml"
    file.write_text(controller_toml(controller(tmp_path / "data"), data_dir="data"))
    assert load_controller_settings(file) == controller(tmp_path / "data")
    assert load_for_format(file) == ("controller", 2, tmp_path / "data", CLUSTER_ID)
    told = replace(
        broker(tmp_path / "data"),
        listen_http=("0.0.0.0", 9101),
        advertised_http=("b11", 80),
        advertised_listeners=(
            BrokerEndpoint("EXTERNAL", "::1", 9093, 3),
            BrokerEndpoint("odd name", "h", 1, 0),
        ),
    )
    for settings in (broker(tmp_path / "data"), replace(broker(tmp_path / "data"), rack=None), told):
        file.write_text(broker_toml(settings, data_dir="data"))
        assert load_broker_settings(file) == settings
    assert load_for_format(file) == ("broker", 11, tmp_path / "data", CLUSTER_ID)


@pytest.mark.parametrize("line", ['http = "127.0.0.1:9"', 'raft = "http://h:9"', "http = 9"])
def test_format_refuses_an_address_that_run_would(tmp_path: Path, line: str) -> None:
    file = tmp_path / "node.toml"
    file.write_text(f'node_id = 1\ndata_dir = "data"\n[listen]\n{line}\n')
    with pytest.raises(InvalidSettings, match=rf"listen\.{line[:4]} = .*wanted"):
        load_for_format(file)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ('http = "b11:9101"', "advertised.http = 'b11:9101': wanted http://HOST:PORT"),
        ('http = "http://0.0.0.0:9101"', "advertised.http = .*others can reach"),
        ('htp = "http://b11:9101"', "advertised.htp is unknown; did you mean http"),
        ('[advertised.listeners]\nX = "b11:1"', "advertised.listeners.X = .*wanted PROTOCOL://HOST:PORT"),
        ('[advertised.listeners]\nX = "ssl://b11:1"', "advertised.listeners.X = .*SASL_SSL"),
        ('[advertised.listeners]\nX = "SSL://b11:0"', "advertised.listeners.X = .*others can reach"),
        ('[advertised.listeners]\nPLAINTEXT = "SSL://b11:1"', "advertised.listeners.PLAINTEXT: "),
    ],
)
def test_what_a_broker_advertises_is_checked(tmp_path: Path, lines: str, message: str) -> None:
    file = tmp_path / "broker.toml"
    file.write_text(f"{broker_toml(broker(tmp_path / 'data'), data_dir='data')}[advertised]\n{lines}\n")
    with pytest.raises(InvalidSettings, match=message):
        load_broker_settings(file)


def test_the_examples_are_settings_at_their_defaults() -> None:
    settings = load_controller_settings(EXAMPLES / "controller.toml")
    assert (settings.timing, settings.log, settings.snapshot) == (
        TimingSettings(),
        LogSettings(),
        SnapshotSettings(),
    )
    example = load_broker_settings(EXAMPLES / "broker.toml")
    assert example.controllers == tuple(voter.http for voter in settings.voters)
    assert example.cluster_id == settings.cluster_id


def test_the_examples_name_every_key_with_its_default() -> None:
    """Goal: what is commented out is what would be without it."""
    for role in BOTH:
        lines = (EXAMPLES / f"{role}.toml").read_text().splitlines()
        shown = {
            line.split("=")[0].strip("# "): line.split("=")[1].split("#")[0].strip()
            for line in lines
            if "=" in line
        }
        for key in keys_of(role):
            if key.key == "NAME":
                continue
            assert key.key in shown, key
            default = key.default(role)
            if key.table in GROUPS and isinstance(default, int):
                assert shown[key.key] == str(default).lower(), key


def test_each_setting_has_one_key() -> None:
    """Goal: none can be read that is not written and described, and none is described that is not there."""
    classes: dict[Role, type] = {"controller": ControllerSettings, "broker": BrokerSettings}
    for role, settings in classes.items():
        names = [(key.table, key.key) for key in keys_of(role)]
        assert len(set(names)) == len(names)
        known = {key.field for key in keys_of(role) if key.key not in {"insecure", "NAME"}}
        wanted: set[tuple[str, ...]] = set()
        for field in fields(settings):
            inner = GROUPS.get(field.name)
            of_table = {(field.name, each.name) for each in fields(inner)} if inner else {(field.name,)}
            wanted |= of_table - {("advertised_listeners",)}
        assert known == wanted


def test_the_page_of_settings_is_what_the_code_says() -> None:
    """Write it with `python -m tests.settings_page`."""
    assert PAGE.read_text(encoding="utf-8") == page()


def test_a_controller_outside_the_voters_is_an_observer_that_tells_where_it_listens(tmp_path: Path) -> None:
    file = tmp_path / "controller.toml"
    observer = replace(controller(tmp_path / "data"), node_id=NodeId(7))
    file.write_text(controller_toml(observer, data_dir="data"))
    loaded = load_controller_settings(file)
    assert loaded == observer
    assert not loaded.is_listed
    assert (loaded.http_url, loaded.raft_address) == ("http://127.0.0.1:9092", ("127.0.0.1", 9192))


def test_what_is_advertised_comes_before_the_voters_entry(tmp_path: Path) -> None:
    file = tmp_path / "controller.toml"
    founder = controller(tmp_path / "data")
    assert (founder.http_url, founder.raft_address) == (founder.own.http, founder.own.raft)
    moved = replace(founder, advertised_http="http://c2:9092", advertised_raft=("c2", 9192))
    file.write_text(controller_toml(moved, data_dir="data"))
    assert load_controller_settings(file) == moved
    assert (moved.http_url, moved.raft_address) == ("http://c2:9092", ("c2", 9192))


@pytest.mark.parametrize(
    ("was", "now", "message"),
    [
        ('raft = "c1:9191"', 'raft = "0.0.0.0:9191"', "raft = .*others can reach"),
        ('raft = "c1:9191"', 'raft = "c1:0"', "raft = .*others can reach"),
        ('http = "http://c1:9091"', 'http = "http://[::]:9091"', "http = .*others can reach"),
        ("id = 1", "id = 2147483648", "controller id 2147483648 is outside 0 to 2147483647"),
    ],
)
def test_a_voter_must_be_reachable_and_within_kafkas_ids(
    tmp_path: Path, was: str, now: str, message: str
) -> None:
    file = tmp_path / "controller.toml"
    settings = controller(tmp_path / "data")
    first = replace(settings.voters[0], raft=("c1", 9191), http="http://c1:9091")
    text = controller_toml(replace(settings, voters=(first, *settings.voters[1:])), data_dir="data")
    assert was in text
    file.write_text(text.replace(was, now, 1))
    with pytest.raises(InvalidSettings, match=message):
        load_controller_settings(file)


@pytest.mark.parametrize(
    ("listen_http", "listen_raft", "advertised", "message"),
    [
        (("0.0.0.0", 9092), ("127.0.0.1", 9192), "", "set advertised.http"),
        (("127.0.0.1", 9092), ("::", 9192), "", "set advertised.raft"),
        (("127.0.0.1", 0), ("127.0.0.1", 9192), "", "set advertised.http"),
        (("0.0.0.0", 9092), ("0.0.0.0", 9192), 'http = "http://c7:9092"\nraft = "c7:9192"\n', None),
        (("h", 9092), ("h", 9192), 'raft = "0.0.0.0:9192"\n', r"advertised\.raft = .*others can reach"),
        (("h", 9092), ("h", 9192), 'http = "http://[::]:9092"\n', r"advertised\.http = .*others can reach"),
        (("h", 9092), ("h", 9192), 'raft = "h:0"\n', r"advertised\.raft = .*others can reach"),
        (("h", 9092), ("h", 9192), 'raft = "h:1"\n', r"advertised\.raft tells the others port 1"),
        (("h", 9092), ("h", 9192), 'host = "h"\n', r"advertised\.host is unknown"),
    ],
)
def test_others_must_be_able_to_reach_an_observer(
    tmp_path: Path,
    listen_http: tuple[str, int],
    listen_raft: tuple[str, int],
    advertised: str,
    message: str | None,
) -> None:
    file = tmp_path / "controller.toml"
    observer = replace(
        controller(tmp_path), node_id=NodeId(7), listen_http=listen_http, listen_raft=listen_raft
    )
    file.write_text(f"{controller_toml(observer, data_dir='data')}\n[advertised]\n{advertised}")
    if message is None:
        assert load_controller_settings(file).raft_address == ("c7", 9192)
    else:
        with pytest.raises(InvalidSettings, match=message):
            load_controller_settings(file)


def with_kafka(data_dir: Path) -> ControllerSettings:
    """Return settings of a controller that has a listener for Kafka's brokers."""
    settings = controller(data_dir)
    return replace(
        settings,
        listen_kafka=("0.0.0.0", 9292),
        timing=TimingSettings(session_timeout_ms=6_000),
        voters=tuple(replace(voter, kafka=(f"c{voter.id}", 9292)) for voter in settings.voters),
    )


@pytest.mark.parametrize("features", [FeatureSettings(), FeatureSettings(founding_metadata_version=27)])
def test_a_file_without_choices_of_levels_is_one_that_older_releases_read(
    features: FeatureSettings, tmp_path: Path
) -> None:
    file = tmp_path / "controller.toml"
    chosen = replace(controller(tmp_path / "data"), features=features)
    file.write_text(controller_toml(chosen, data_dir="data"))
    assert load_controller_settings(file) == chosen
    assert ("[features]" in file.read_text()) == (features != FeatureSettings())


@pytest.mark.parametrize("level", ["4.1", "27", "4.1-IV1", 27])
def test_a_level_is_named_as_kafka_names_it(level: object) -> None:
    around = settings_values.Around(Path(), tls=False)
    assert settings_values.METADATA_VERSION.read(level, around) == 27
    for wrong in ("4.1-IV9", 6, True, 27.0, None):
        with pytest.raises(ValueError, match=r"wanted a level of metadata\.version: 7 to 31"):
            settings_values.METADATA_VERSION.read(wrong, around)


@pytest.mark.parametrize(
    ("features", "told"),
    [
        (FeatureSettings(founding_metadata_version=31), "is outside 7 to 30 .unstable_levels = true adds"),
        (FeatureSettings(founding_metadata_version=16), "without listen.kafka it must be at least 17"),
    ],
)
def test_a_founding_level_that_cannot_be_is_refused(
    features: FeatureSettings, told: str, tmp_path: Path
) -> None:
    with pytest.raises(InvalidSettings, match=told):
        replace(controller(tmp_path / "data"), features=features).validate()


@pytest.mark.parametrize(
    "kafka", [KafkaSettings(), KafkaSettings(listener_name="K", security="plaintext", other_brokers=True)]
)
def test_a_listener_for_kafka_survives_the_way_to_a_file_and_back(
    tmp_path: Path, kafka: KafkaSettings
) -> None:
    file = tmp_path / "controller.toml"
    settings = replace(with_kafka(tmp_path / "data"), kafka=kafka)
    file.write_text(controller_toml(settings, data_dir="data"))
    assert ("[kafka]" in file.read_text()) == (kafka != KafkaSettings())
    assert load_controller_settings(file) == settings
    assert settings.kafka_address == ("c2", 9292)
    assert replace(settings, advertised_kafka=("k", 1)).kafka_address == ("k", 1)
    assert "c2" in hosts_to_certify(file)


def test_without_a_listener_for_kafka_nothing_of_it_is_written(tmp_path: Path) -> None:
    """Goal: a release before it reads the file, too."""
    settings = controller(tmp_path)
    assert "kafka" not in controller_toml(settings, data_dir="data")
    assert settings.kafka_address is None


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            {"timing": TimingSettings(session_timeout_ms=5_999)},
            r"session_timeout_ms = 5999 must be at least 6000",
        ),
        ({"topics": TopicSettings(undelete_window_ms=1)}, r"topics\.undelete_window_ms = 1 must be 0"),
        ({"voters": None}, r"voters\.kafka of node 2 is missing"),
        ({"kafka": KafkaSettings(security="tls")}, r"kafka\.security = 'tls', but there is no \[tls\]"),
        ({"kafka": KafkaSettings(security="sasl_plaintext")}, r"no \[identity\] principals"),
        ({"kafka": KafkaSettings(security="ssl")}, r"kafka\.security = 'ssl': wanted one of plaintext, tls"),
        ({"listen_kafka": None}, r"voters\.kafka of node 2 is set, but listen\.kafka is not"),
        (
            {"listen_kafka": None, "advertised_kafka": ("k", 1)},
            r"advertised\.kafka is set, but listen\.kafka",
        ),
        (
            {"listen_kafka": None, "voters": None, "kafka": KafkaSettings(other_brokers=True)},
            r"\[kafka\] is set, but",
        ),
        ({"node_id": NodeId(7)}, r"set advertised\.kafka"),
    ],
)
def test_what_a_listener_for_kafka_asks_of_the_other_settings(
    tmp_path: Path, changed: dict[str, Any], message: str
) -> None:
    if "voters" in changed:
        changed = {**changed, "voters": controller(tmp_path).voters}
    with_kafka(tmp_path).validate()
    with pytest.raises(InvalidSettings, match=message):
        replace(with_kafka(tmp_path), **changed).validate()


def test_enforced_acls_need_principals_and_survive_the_way_to_a_file_and_back(tmp_path: Path) -> None:
    settings = controller(tmp_path / "data")
    file = tmp_path / "controller.toml"
    assert "[acls]" not in controller_toml(settings, data_dir="data"), (
        "a release before them reads the file, too"
    )
    with pytest.raises(
        InvalidSettings, match=r"acls\.enforced = true, but there is no \[identity\] principals"
    ):
        replace(settings, acls=AclSettings(enforced=True)).validate()
    with pytest.raises(InvalidSettings, match=r"acls\.enforced is not: no ACL counts"):
        replace(settings, acls=AclSettings(allow_everyone_if_no_acl_found=True)).validate()
    acls = AclSettings(enforced=True, allow_everyone_if_no_acl_found=True)
    named = replace(settings, acls=acls, principals=tmp_path / "principals.toml")
    file.write_text(controller_toml(named, data_dir="data"))
    assert load_controller_settings(file).acls == acls
    assert acls.by_acls == ByAcls(allow_if_none=True) and AclSettings().by_acls is None


def test_the_listener_for_kafka_is_as_encrypted_as_the_other_ports(tmp_path: Path) -> None:
    settings = with_kafka(tmp_path)
    tls = replace(
        settings,
        tls=TlsFiles(*map(Path, ("node.crt", "node.key", "ca.crt"))),
        voters=tuple(replace(voter, http=f"https://c{voter.id}:9091") for voter in settings.voters),
    )
    tls.validate()
    assert (settings.kafka_security, tls.kafka_security) == ("plaintext", "tls")
    with pytest.raises(InvalidSettings, match=r"'plaintext', but there is a \[tls\]"):
        replace(tls, kafka=KafkaSettings(security="plaintext")).validate()


CONTROLLER_FAULTS = [
    ('cluster_id = "4L6g3nShT-eMCtK--X86sw"\n', "", r"cluster_id is missing"),
    ("4L6g3nShT-eMCtK--X86sw", "short", r"cluster_id = 'short': wanted the 22 characters"),
    ("node_id = 2", 'node_id = "2"', r"node_id = '2': wanted a whole number"),
    ("node_id = 2", "node_id = true", r"node_id = True: wanted a whole number"),
    ("node_id = 2", "node_id = -2", r"node_id = -2: wanted a whole number"),
    ("node_id = 2", "node_id = 2\nnode_ids = 2", r"node_ids is unknown; did you mean node_id\?"),
    ('data_dir = "data"', 'data_dir = ""', r"data_dir = '': wanted text"),
    ('data_dir = "data"', "data_dir = [1]", r"data_dir = \[1\]: wanted text"),
    ("[listen]\nhttp", "[listen]\nhtpt", r"listen\.http is missing"),
    ('"http://127.0.0.1:9092"\nraft', '"127.0.0.1:9092"\nraft', r"listen\.http = .*wanted http://HOST:PORT"),
    (
        '"http://127.0.0.1:9092"\nraft',
        '"http://127.0.0.1:9092/"\nraft',
        r"listen\.http = .*without trailing slash",
    ),
    (
        'raft = "127.0.0.1:9192"\n\n',
        'raft = "127.0.0.1"\n\n',
        r"listen\.raft = '127\.0\.0\.1': wanted HOST:PORT",
    ),
    ('raft = "127.0.0.1:9192"\n\n', 'raft = "127.0.0.1:99999"\n\n', r"listen\.raft = .*wanted HOST:PORT"),
    ('raft = "127.0.0.1:9192"\n\n', 'raft = "c2..example:9192"\n\n', r"listen\.raft = .*wanted HOST:PORT"),
    (
        '"http://127.0.0.1:9092"\nraft',
        '"http://ho st:9092"\nraft',
        r"listen\.http = .*wanted http://HOST:PORT",
    ),
    ('raft = "127.0.0.1:9192"\n\n', 'raft = "127.0.0.1:9999"\n\n', r"tells the others port 9192"),
    ("[[voters]]\nid = 1", "[[voters]]\nid = 1.5", r"voters\[0\]\.id = 1\.5"),
    ("[[voters]]\nid = 1", "[[voters]]\nid = 3", r"different ids are needed"),
    ("[[voters]]\nid = 1", "[[voters]]\nname = 1\nid = 1", r"voters\[0\]\.name is unknown"),
    ("AQEBAQEBAQEBAQEBAQEBAQ", "AQEBAQEBAQEBAQEBAQEBAR", r"voters\[0\]\.directory_id = .*storage format"),
    ("AQEBAQEBAQEBAQEBAQEBAQ", "AAAAAAAAAAAAAAAAAAAAAA", r"voters\[0\]\.directory_id = .*storage format"),
    (
        "heartbeat_ms = 50",
        "heartbeat_ms = 200",
        r"election_timeout_min_ms = 300 must be at least three heartbeats",
    ),
    ("heartbeat_ms = 50", "hartbeat_ms = 50", r"timing\.hartbeat_ms is unknown; did you mean heartbeat_ms\?"),
    ("[snapshot]", "[snapshots]", r"snapshots is unknown; did you mean snapshot\?"),
    ("[timing]", "[timing", r"not TOML"),
]


@pytest.mark.parametrize(("old", "new", "message"), CONTROLLER_FAULTS)
def test_a_fault_is_named_with_file_and_key(tmp_path: Path, old: str, new: str, message: str) -> None:
    file = tmp_path / "controller.toml"
    sound = controller_toml(controller(tmp_path), data_dir="data")
    assert old in sound
    file.write_text(sound.replace(old, new, 1))
    with pytest.raises(InvalidSettings, match=message) as caught:
        load_controller_settings(file)
    assert str(file) in caught.value.message


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("broker_id = 11", "broker_id = 4294967296", r"broker_id = 4294967296 is outside"),
        (
            '["http://127.0.0.1:9091", "http://[::1]:9092"]',
            '"http://127.0.0.1:9091"',
            r"controllers = .*a list",
        ),
        ('["http://127.0.0.1:9091", "http://[::1]:9092"]', "[]", r"controllers: 1 to"),
        (
            '["http://127.0.0.1:9091", "http://[::1]:9092"]',
            '["http://h:1/"]',
            r"controllers = .*trailing slash",
        ),
        ("shutdown_timeout_ms = 5000", "shutdown_timeout_ms = 0", r"shutdown_timeout_ms = 0 is outside"),
        ("shutdown_timeout_ms = 5000", "shutdown_timeout_ms = 1979-05-27", r"wanted a whole number"),
        ("[listen]", "[listening]", r"listen is missing"),
    ],
)
def test_a_brokers_fault_too(tmp_path: Path, old: str, new: str, message: str) -> None:
    file = tmp_path / "broker.toml"
    sound = broker_toml(broker(tmp_path), data_dir="data")
    assert old in sound
    file.write_text(sound.replace(old, new, 1))
    with pytest.raises(InvalidSettings, match=message) as caught:
        load_broker_settings(file)
    assert str(file) in caught.value.message


@pytest.mark.parametrize("content", [b"\xff\xfe", b"#" * (1024 * 1024 + 1), b"a = " + b"[" * 5_000])
def test_what_is_no_settings_file(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "controller.toml"
    file.write_bytes(content)
    with pytest.raises(InvalidSettings, match=r"controller\.toml: "):
        load_controller_settings(file)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InvalidSettings, match=r"none\.toml: No such file"):
        load_broker_settings(tmp_path / "none.toml")
    with pytest.raises(InvalidSettings, match="Is a directory"):
        load_broker_settings(tmp_path)


TLS = TlsFiles(Path("tls/node.crt"), Path("tls/node.key"), Path("tls/ca.crt"))


def test_settings_with_tls_and_identity_survive_the_way_to_a_file_and_back(tmp_path: Path) -> None:
    of_file = {
        "tls": TlsFiles(*(tmp_path / path for path in (TLS.certificate, TLS.key, TLS.ca))),
        "principals": tmp_path / "principals.toml",
        "token_file": tmp_path / "token",
        "allowed_hosts": ("a.example", "b.example"),
    }
    relative = {**of_file, "tls": TLS, "principals": Path("principals.toml"), "token_file": Path("token")}
    file = tmp_path / "node.toml"
    plain = controller(tmp_path / "data")
    voters = tuple(replace(voter, http=voter.http.replace("http", "https")) for voter in plain.voters)
    settings = replace(plain, voters=voters)
    file.write_text(controller_toml(replace(settings, **relative), data_dir="data"))  # type: ignore[arg-type]
    assert load_controller_settings(file) == replace(settings, **of_file)  # type: ignore[arg-type]
    assert load_for_format(file)[1] == 2
    of_broker = replace(broker(tmp_path / "data"), controllers=("https://127.0.0.1:9091",))
    file.write_text(broker_toml(replace(of_broker, **relative), data_dir="data"))  # type: ignore[arg-type]
    read = load_broker_settings(file)
    assert read == replace(of_broker, **of_file)  # type: ignore[arg-type]
    assert read.endpoints(9101)[0] == BrokerEndpoint("SSL", "::1", 9101, 1)
    assert load_for_format(file)[1] == 11


TLS_LINE = 'tls = {certificate = "tls/node.crt", key = "tls/node.key", ca = "tls/ca.crt"}\n'
SECURE = f'{TLS_LINE}identity = {{principals = "principals.toml"}}\n'


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("insecure = true\n", "", "neither [tls] nor `insecure = true`"),
        ("insecure = true\n", "insecure = false\n", "neither [tls] nor `insecure = true`"),
        ("insecure = true\n", "insecure = 1\n", "insecure = 1: wanted true or false"),
        (
            "insecure = true\n",
            f"insecure = true\n{SECURE}",
            "and `insecure = true`: remove `insecure = true`",
        ),
        (
            "insecure = true\n",
            TLS_LINE,
            "there is [tls], but neither [identity] with principals nor `insecure = true`",
        ),
        (
            "insecure = true\n",
            f'{TLS_LINE}identity = {{token_file = "token"}}\n',
            "there is [tls], but neither [identity] with principals nor `insecure = true`",
        ),
        ("insecure = true\n", "tls = {}\n", "tls.certificate is missing"),
        (
            "insecure = true\n",
            SECURE,
            "listen.http = 'http://127.0.0.1:9092': wanted https://HOST:PORT without trailing slash, as there is [tls]",
        ),
        ("[listen]", '[http]\nallowed_hosts = ["a:1"]\n[listen]', "allowed_hosts"),
    ],
)
def test_encryption_and_identity_are_left_out_in_so_many_words(
    tmp_path: Path, old: str, new: str, message: str
) -> None:
    file = tmp_path / "controller.toml"
    text = controller_toml(controller(tmp_path), data_dir="data")
    assert old in text
    file.write_text(text.replace(old, new, 1))
    with pytest.raises(InvalidSettings, match=re.escape(message)):
        load_controller_settings(file)


@pytest.mark.parametrize(
    "lines", ["", f"insecure = false\n{TLS_LINE}", TLS_LINE, f"{TLS_LINE}insecure = true\n", SECURE]
)
def test_a_broker_without_identity_says_so(tmp_path: Path, lines: str) -> None:
    """Goal: TLS and identity are both on unless the file says `insecure = true`, in a broker's file as in a controller's."""
    file = tmp_path / "broker.toml"
    https = replace(broker(tmp_path / "data"), controllers=("https://127.0.0.1:9091",))
    text = broker_toml(https, data_dir="data").replace("http://", "https://")
    file.write_text(text.replace("insecure = true\n", lines, 1))
    if lines == SECURE or "insecure = true" in lines:
        read = load_broker_settings(file)
        assert (read.principals is not None) == (lines == SECURE)
        assert read.tls is not None
        named = (
            {"tls": TLS} if read.principals is None else {"tls": TLS, "principals": Path("principals.toml")}
        )
        file.write_text(broker_toml(replace(read, **named), data_dir="data"))
        assert load_broker_settings(file) == read
    else:
        with pytest.raises(InvalidSettings, match=r"broker\.toml: there is .*[Gg]ive it"):
            load_broker_settings(file)
