"""Edge: leads a cluster of real processes through toxiproxy: each link between its nodes, and those of its clients."""

from dataclasses import replace
from pathlib import Path

from metadata_log.node.addresses import HostPort, address_text, read_url
from ops.local.cluster import LocalCluster
from ops.local.layout import Member
from quorum.node.config import ControllerSettings
from tests.robustness.proxies import Proxies


def through(proxies: Proxies, settings: ControllerSettings) -> ControllerSettings:
    """Let a controller reach each other voter through a proxy of its own, and all its peers' HTTP go through one.

    It advertises that one by a host name, under which brokers find their own.
    """
    own = settings.node_id
    voters = []
    for voter in settings.voters:
        peers = proxies.address(f"peers-{voter.id}", read_url(voter.http))
        if voter.id == own:
            voters.append(voter)
            # By another name for the same host: who advertises a port of the host it listens on must listen there.
            settings = replace(settings, advertised_http=_elsewhere(voter.http, ("localhost", peers[1])))
        else:
            raft = proxies.address(f"raft-{own}-{voter.id}", voter.raft)
            voters.append(replace(voter, http=_elsewhere(voter.http, peers), raft=raft))
    return replace(settings, voters=tuple(voters))


def client_urls(cluster: LocalCluster, proxies: Proxies) -> dict[int, str]:
    urls = {}
    for member in cluster.controllers:
        address = proxies.address(f"clients-{member.id}", read_url(member.http))
        urls[member.id] = _elsewhere(member.http, address)
    return urls


def send_brokers_through(cluster: LocalCluster, proxies: Proxies) -> None:
    """Let each broker reach each controller through a proxy of its own, by the URL that the controller advertises."""
    for broker in cluster.brokers:
        path = cluster.directory / broker.config
        text = path.read_text()
        for member in cluster.controllers:
            upstream = read_url(member.http)
            _, port = proxies.address(f"peers-{member.id}", upstream)
            proxies.address(f"broker-{broker.id}-{member.id}", upstream, listen=(_host(broker), port))
            text = text.replace(f'"{member.http}"', f'"{_elsewhere(member.http, ("localhost", port))}"')
        path.write_text(text)


def broker_environment(directory: Path, member: Member) -> dict[str, str]:
    """Return what leads a broker's process to its own proxies; nothing for a controller."""
    if member.role != "broker":
        return {}
    return {
        "PYTHONPATH": str(Path(__file__).with_name("in_broker")),
        "ROBUSTNESS_BROKER_HOST": _host(member),
        "ROBUSTNESS_BROKER_CONNECTED": str(_connected(directory, member)),
    }


def went_past(directory: Path, broker: Member) -> str | None:
    """Return where a broker connected to, if that is not its own proxies alone; else None."""
    file = _connected(directory, broker)
    addresses = set(file.read_text().split()) if file.exists() else set()
    own = {_host(broker)}
    return None if addresses == own else f"connected to {sorted(addresses)}, not to its own proxies alone"


def _elsewhere(url: str, address: HostPort) -> str:
    """Return a URL of the same scheme at another address."""
    return f"{url.partition(':')[0]}://{address_text(address)}"


def _host(broker: Member) -> str:
    """Return the address at which a broker, and nobody else, finds the controllers; all of 127/8 is this machine."""
    return f"127.0.1.{broker.id}"


def _connected(directory: Path, broker: Member) -> Path:
    """Return the file of the addresses that a broker has connected to."""
    return directory / f"{broker.name}.connected"
