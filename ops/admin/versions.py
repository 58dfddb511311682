"""Edge: which release each node runs, which levels it supports, and which level of each feature is possible now.

The active controller itself is asked whether it would finalize a level: its rules count, not those of this client's release.
Tests: tests/unit/ops/verbs/test_quorum_versions.py.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final, NamedTuple

from metadata_log.errors import MetadataError, Rejected
from metadata_log.node.addresses import http_url
from metadata_log.node.attempts import Attempt
from metadata_log.records.brokers import SSL_PROTOCOL, FeatureRange
from metadata_log.records.features import METADATA_VERSION, METAQUORUM_VERSION
from ops.admin.client import ClusterClient, controllers_named
from ops.admin.cluster import Cluster
from ops.admin.health import NodeAnswers
from ops.admin.items import chunks
from ops.admin.survey import in_time, none_answers, surveyed

NODE_S: Final = 1.0
AT_A_TIME: Final = 32
CURE: Final = ". Upgrade them;"
"""Where the refusal of a level begins to say what to do."""
LEADERLESS: Final = "no controller leads"


def nodes(client: ClusterClient) -> list[dict[str, Any]]:
    """Return each node with its release; None is not known: an older release, a broker of another make, or a silent node."""
    answers = list(surveyed(client))
    known = [node.quorum for node in answers if node.quorum is not None]
    # One that is silent is named by the others.
    ids = {url: id_ for quorum in known for id_, url in controllers_named(quorum).items()}
    controllers = [_controller(node, ids.get(node.url)) for node in answers]
    if not known:
        client.say(f"the brokers are not known: {none_answers(answers)}")
        return controllers
    return [*controllers, *_brokers(client)]


def _controller(node: NodeAnswers, named: int | None) -> dict[str, Any]:
    node_id = named if node.quorum is None else node.quorum["node_id"]
    return {
        "node": "controller" if node_id is None else f"controller {node_id}",
        "version": None if node.quorum is None else node.quorum.get("version"),
        "address": node.url,
    }


def _brokers(client: ClusterClient) -> list[dict[str, Any]]:
    # A broker registers any endpoint it likes: it gets no token of ours.
    asking = ClusterClient(
        client.bootstrap,
        timeout_s=min(client.timeout_s, NODE_S),
        rng=client.rng,
        credentials=replace(client.credentials, token=None),
    )

    def ask(attempt: Attempt) -> str | None:
        with suppress(MetadataError, AttributeError):  # it may be no broker of ours
            version: str | None = asking.ask_one(attempt.url, "/v1/status").json().get("version")
            return version
        return None

    try:
        brokers = client.read("/v1/brokers")["items"]
    except MetadataError as error:
        client.say(f"the brokers are not known: {error.message}")
        return []
    urls = [_address(broker) for broker in brokers]
    versions: dict[str, str | None] = {}
    for some in chunks([url for url in urls if url is not None], AT_A_TIME):
        versions |= in_time(client, some, ask, lambda version: version is not None)
    return [
        {
            "node": f"broker {broker['broker_id']}",
            "version": None if url is None else versions.get(url),
            "address": url,
        }
        for broker, url in zip(brokers, urls, strict=True)
    ]


def _address(broker: Mapping[str, Any]) -> str | None:
    for endpoint in broker["endpoints"][:1]:
        return http_url(
            (endpoint["host"], endpoint["port"]), tls=endpoint["security_protocol"] == SSL_PROTOCOL
        )
    return None


# --- levels


class Level(NamedTuple):
    """A feature: the level that is finalized, the highest that is possible now, and what holds back a higher one."""

    feature: str
    level: int
    possible: int | None
    """None: whether a higher one is possible is not known."""
    newest: int | None
    """The highest that the active controller knows; None: it does not know the feature."""
    held_back_by: str | None


def levels(client: Cluster) -> list[Level]:
    """Return each feature that is finalized, or that the active controller can finalize; raises as `Cluster.items`."""
    rows = client.items("/v1/features")
    if client.expects_no_leader:
        return [Level(row["feature"], row["level"], None, row["supported_max"], LEADERLESS) for row in rows]
    return [_level(client, row) for row in rows]


def _level(client: Cluster, row: Mapping[str, Any]) -> Level:
    name, level, newest = row["feature"], row["level"], row["supported_max"]
    why = None
    for wanted in range(newest or level, level, -1):
        try:
            client.write("POST", "/v1/features", raised(name, wanted) | {"validate_only": True})
        except Rejected as error:
            if error.error != "INVALID_UPDATE_VERSION":
                return Level(name, level, None, newest, error.message)
            why = why or error.message.partition(": ")[2].partition(CURE)[0]
        else:
            return Level(name, level, wanted, newest, why)
    return Level(name, level, level, newest, why)


def raised(name: str, level: int) -> dict[str, Any]:
    """Return the body of the request that raises a level."""
    return {"updates": [{"feature": name, "level": level, "upgrade_type": "upgrade"}]}


def ranges(client: ClusterClient) -> dict[str, dict[str, list[int]]]:
    """Return the levels that each registered node supports, by its name; raises as `live_image`."""
    from ops.admin.live_state import live_image

    image = live_image(client)
    registered: dict[str, Sequence[FeatureRange]] = {
        f"controller {controller_id}": one.features for controller_id, one in image.controllers.items()
    }
    registered |= {f"broker {broker_id}": one.features for broker_id, one in image.brokers.items()}
    return {
        name: {each.name: [each.min_version, each.max_version] for each in features}
        for name, features in registered.items()
    }


def next_step(found: Sequence[Mapping[str, Any]], features: Sequence[Level]) -> str:
    """Return what an upgrade needs next."""
    known = sorted({one["version"] for one in found if one["version"] is not None})
    if len(known) > 1:
        older = [one["node"] for one in found if one["version"] not in (None, known[-1])]
        return (
            f"{len(known)} releases run ({', '.join(known)}): restart {', '.join(older)} with one release "
            "(metaquorum roll), before a level is raised"
        )
    ours = next((one for one in features if one.feature == METAQUORUM_VERSION), None)
    if ours is None or ours.possible is None:
        is_led = ours is None or ours.held_back_by != LEADERLESS
        why = "it takes the right to alter the cluster" if is_led else LEADERLESS
        return f"whether a level can be raised is not known: {why}"
    if ours.possible > ours.level:
        return (
            f"all nodes support it: metaquorum features upgrade {METAQUORUM_VERSION}={ours.possible}. It never falls again, "
            "and an older release cannot follow then"
        )
    if ours.held_back_by is not None:
        return f"{METAQUORUM_VERSION} stays at {ours.level}: {ours.held_back_by}"
    kafkas = next((one for one in features if one.feature == METADATA_VERSION), None)
    if kafkas is not None and (kafkas.possible or 0) > kafkas.level:
        return (
            f"all nodes support it: metaquorum features upgrade {METADATA_VERSION}={kafkas.possible}. "
            f"metaquorum features preview {METADATA_VERSION}={kafkas.level} lists afterwards what would hinder a way back"
        )
    others = [f"{one.feature}={one.possible}" for one in features if (one.possible or 0) > one.level]
    rest = f"; metaquorum features upgrade can also raise {', '.join(others)}" if others else ""
    return f"nothing: {METAQUORUM_VERSION} is {ours.level}, the newest level of this release{rest}"
