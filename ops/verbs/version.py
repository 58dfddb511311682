"""Edge: `version`: the release of this client and of every node."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from metadata_log.errors import MetadataError
from metadata_log.node.addresses import http_url
from metadata_log.node.attempts import Attempt
from metadata_log.node.release import release
from metadata_log.records.brokers import SSL_PROTOCOL
from ops.admin.client import ClusterClient
from ops.admin.health import NodeAnswers
from ops.admin.items import chunks
from ops.admin.survey import in_time, survey
from ops.given import Misuse
from ops.options import Network, Verb, flag, reading
from ops.render import Column
from ops.talk import say

NODE_S: Final = 1.0
AT_A_TIME: Final = 32
VERSIONS: Final = (Column("node"), Column("version"), Column("address"))


@flag("--client", "client_only", help="of this client alone; no node is asked")
@reading
def run_version(asked: Network, *, client_only: bool) -> int:
    """Show versions; one that is not known is None: an older release, a broker of another make, or a silent node."""
    found: list[dict[str, Any]] = [{"node": "client", "version": release(), "address": None}]
    if not client_only:
        try:
            client = asked.client()
        except (MetadataError, Misuse) as error:
            say(f"no node was asked: {error}")
        else:
            nodes = survey(client)
            leaders = {node.quorum["leader_id"] for node in nodes if node.quorum is not None}
            if leaders == {-1}:
                client.expect_no_leader()
            found += [*map(_controller, nodes), *_brokers(client)]
    known = {one["version"] for one in found} - {None}
    asked.show_items(found, VERSIONS, empty="")
    if len(known) > 1:
        say(f"{len(known)} versions run: {', '.join(sorted(known))}")
    return 0


NOUN: Final = Verb(run_version, examples=("version", "version --client", "version -o json"))


def _controller(node: NodeAnswers) -> dict[str, Any]:
    return {
        "node": "controller" if node.quorum is None else f"controller {node.quorum['node_id']}",
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
        say(f"the brokers are not known: {error.message}")
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
