"""Edge: links with TLS: a node is who its certificate says, and silent strangers keep nobody out."""

import asyncio
import contextlib
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from metadata_log.ids import NodeId
from metadata_log.limits import DIAL_GRACE_MS, RAFT_HANDSHAKES_MAX
from metadata_log.node.addresses import HostPort
from metadata_log.node.identity.certificate_dates import first_certificate, serial_of
from metadata_log.node.identity.credentials import TlsFiles
from metadata_log.node.identity.tls import Tls
from ops.certificates import Authority
from quorum.raft.dialling import AddressInfo
from quorum.raft.link import Link
from tests.support.certificates import DAY_S, certified
from tests.support.processes import free_ports
from tests.unit.quorum.raft.test_transport import CLUSTER, NACK, Node, linked, say, until


def pair_with(one: TlsFiles, two: TlsFiles) -> tuple[Node, Node, dict[int, int]]:
    first, second = free_ports(2)
    ports = {1: first, 2: second}
    nodes = Node(1, ports), Node(2, ports)
    for node, files in zip(nodes, (one, two), strict=True):
        node.transport._tls = Tls(files, cluster_id=CLUSTER)
    return *nodes, ports


async def test_links_are_encrypted_and_carry_messages(tmp_path: Path) -> None:
    ours = Authority(tmp_path, cluster_id=CLUSTER)
    one, two, ports = pair_with(ours.certify("controller", "1"), ours.certify("controller", "2"))
    async with one.running(), two.running():
        await until(lambda: linked(one.transport) and linked(two.transport), "they are linked")
        say(one.transport, NodeId(2), NACK)
        await until(lambda: two.messages, "a message arrives")
        # Who speaks no TLS, or shows nothing, is not answered.
        reader, writer = await asyncio.open_connection("127.0.0.1", ports[1])
        writer.write(b"\x00\x00\x00\x01\x80")
        with contextlib.suppress(ConnectionError):
            assert b"hello" not in await reader.read()
        writer.close()
        assert linked(one.transport)


@pytest.mark.parametrize(
    ("role", "who", "cluster_id"),
    [
        ("controller", "3", CLUSTER),
        ("broker", "2", CLUSTER),
        ("user", "2", CLUSTER),
        ("controller", "2", "another" * 3 + "c"),
    ],
)
async def test_a_node_with_the_certificate_of_another_is_not_linked(
    tmp_path: Path, role: str, who: str, cluster_id: str
) -> None:
    ours = Authority(tmp_path, cluster_id=CLUSTER)
    theirs = Authority(tmp_path, cluster_id=cluster_id)  # the same authority, for another cluster
    one, two, _ = pair_with(ours.certify("controller", "1"), theirs.certify(role, who))
    async with one.running(), two.running():
        await until(lambda: one.transport.foreign_bytes_total >= 2, "it is dropped, and again")
        assert not linked(one.transport) and not linked(two.transport)
        assert not one.events


async def test_a_controller_with_a_certificate_says_that_the_quorum_is_founded(tmp_path: Path) -> None:
    ours = Authority(tmp_path, cluster_id=CLUSTER)
    one, seven = free_ports(2)
    voter = Node(1, {1: one})
    observer = Node(7, {1: one, 7: seven}, founding=b"")
    for node in voter, observer:
        node.transport._tls = Tls(ours.certify("controller", str(node.transport.node_id)), cluster_id=CLUSTER)
    async with voter.running():
        assert not voter.transport.others_founded()
        async with observer.running():
            await until(lambda: linked(voter.transport), "the observer is linked")
            assert voter.transport.others_founded()


async def test_strangers_who_do_not_finish_the_handshake_keep_no_voter_out(tmp_path: Path) -> None:
    ours = Authority(tmp_path, cluster_id=CLUSTER)
    one, two, ports = pair_with(ours.certify("controller", "1"), ours.certify("controller", "2"))
    async with one.running(), contextlib.AsyncExitStack() as stack:
        for _ in range(RAFT_HANDSHAKES_MAX + 5):
            _, writer = await asyncio.open_connection("127.0.0.1", ports[1])
            stack.callback(writer.close)
        await until(lambda: len(one.transport._encrypting) <= RAFT_HANDSHAKES_MAX, "the oldest are closed")
        async with two.running():
            await until(lambda: linked(one.transport), "a voter is linked all the same")


async def test_voters_change_while_the_connection_of_a_link_is_lost(tmp_path: Path) -> None:
    """With TLS, asyncio closes the socket one round of the loop before it tells the link."""
    ours = Authority(tmp_path, cluster_id=CLUSTER)
    one, two, _ = pair_with(ours.certify("controller", "1"), ours.certify("controller", "2"))
    served: list[int] = []
    one.transport.serve_first = served.append
    async with one.running(), two.running():
        await until(lambda: linked(one.transport) and linked(two.transport), "they are linked")
        link = one.transport._established[NodeId(2)]
        assert served == [link.descriptor]
        link.close()
        while served[-1] >= 0:
            assert linked(one.transport)
            await asyncio.sleep(0)
            one.transport.set_voters(one.transport.voters)
        assert served[-1] == link.descriptor == -1


async def test_a_link_ends_with_the_certificate_that_it_began_with(tmp_path: Path) -> None:
    """Goal: no standing connection outlives its certificate. Method: a link, and a clock that passes the end of one."""
    ours = Authority(tmp_path, cluster_id=CLUSTER)
    now_s = int(time.time())
    short = certified(ours, "controller", "2", begins_s=now_s - 9, ends_s=now_s + DAY_S)
    one, two, _ = pair_with(ours.certify("controller", "1"), short)
    async with one.running(), two.running():
        await until(lambda: linked(one.transport) and linked(two.transport), "they are linked")
        first = one.transport._established[NodeId(2)]
        one.transport.drop_ended(now_s + DAY_S - 1)
        assert not first.closed_here
        one.transport.drop_ended(now_s + DAY_S + 1)
        assert first.closed_here


async def test_a_link_ends_once_the_certificate_is_revoked_and_does_not_come_back(tmp_path: Path) -> None:
    ours = Authority(tmp_path, cluster_id=CLUSTER)
    mine, lost = ours.certify("controller", "1"), ours.certify("controller", "2")
    file = tmp_path / "revoked.toml"
    file.write_text("")
    one, two, _ = pair_with(replace(mine, revoked=file), lost)
    tls = one.transport._tls
    assert tls is not None
    async with one.running(), two.running():
        await until(lambda: linked(one.transport) and linked(two.transport), "they are linked")
        (tmp_path / "part").write_text(
            f'[[revoked]]\nserial = "{serial_of(first_certificate(lost.certificate.read_bytes())):x}"\n'
        )
        (tmp_path / "part").replace(file)
        assert tls.look_at_revoked()
        one.transport.drop_ended(time.time(), tls.is_revoked)
        await until(lambda: not linked(one.transport), "the link is gone")
        dropped = one.transport.foreign_bytes_total
        await asyncio.sleep(0.5)  # two attempts of the other end
        assert not linked(one.transport)
        assert dropped == 1


@pytest.mark.parametrize("renewed", [1, 2], ids=["the lower id", "the higher id"])
async def test_links_are_replaced_once_a_node_has_a_new_certificate_and_no_end_is_taken_for_dead(
    tmp_path: Path, renewed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: the earlier certificate can be revoked. Method: either end is given another; the other one says what it saw."""
    monkeypatch.setattr("quorum.raft.renewal.OLD_ENOUGH_MS", 0)
    ours = Authority(tmp_path / "ca", cluster_id=CLUSTER)
    one, two, _ = pair_with(ours.certify("controller", "1"), ours.certify("controller", "2"))
    node, other = (one, two) if renewed == 1 else (two, one)
    async with one.running(), two.running():
        await until(lambda: linked(one.transport) and linked(two.transport), "they are linked")
        other_id = other.transport.node_id
        first, theirs = node.transport._established[other_id], other.transport._established[NodeId(renewed)]
        # The other end would keep a young link of the higher id.
        other.transport.now_ms = lambda: time.monotonic_ns() // 1_000_000 + 20 * DIAL_GRACE_MS
        assert node.transport.renewal.outdated() == []
        await node.transport.renewal.renew_one()
        assert node.transport._established[other_id] is first, "nothing is new"
        now_s = int(time.time())
        certified(ours, "controller", str(renewed), begins_s=now_s - 9, ends_s=now_s + 99 * DAY_S)
        tls = node.transport._tls
        assert tls is not None
        tls.look_again()
        assert node.transport.renewal.outdated() == [first]
        await node.transport.renewal.renew_one()
        await until(lambda: first.lost.is_set() and theirs.lost.is_set(), "the other end closes the first")
        assert node.transport.renewal.outdated() == []
        link = other.transport._established[NodeId(renewed)]
        assert link is not theirs
        shown = link.encrypted.getpeercert(binary_form=True) if link.encrypted else None
        assert shown == first_certificate(tls._files.certificate.read_bytes())
        assert not any(event[0] == "lost" and event[2] for event in (*one.events, *two.events)), "by no peer"
        say(node.transport, other_id, NACK)
        await until(lambda: other.messages, "messages pass")


async def test_a_peer_that_cannot_be_dialled_is_dialled_ever_more_seldom_and_keeps_its_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: a peer behind a firewall, which dials us, costs no dial every 5 s. Method: no process listens at its address."""
    monkeypatch.setattr("quorum.raft.renewal.OLD_ENOUGH_MS", 0)
    ours = Authority(tmp_path / "ca", cluster_id=CLUSTER)
    node, other, ports = pair_with(ours.certify("controller", "1"), ours.certify("controller", "2"))
    other.transport.hello = replace(other.transport.hello, redials=False)  # as an earlier release
    dialler, peer, now_ms, dialled_at = node.transport.dialler, NodeId(2), 0, list[int]()
    async with node.running(), other.running():
        await until(lambda: linked(node.transport) and linked(other.transport), "they are linked")
        link = node.transport._established[peer]
        other.transport.now_ms = lambda: time.monotonic_ns() // 1_000_000 + 20 * DIAL_GRACE_MS
        now_s = int(time.time())
        certified(ours, "controller", "1", begins_s=now_s - 9, ends_s=now_s + 99 * DAY_S)
        assert node.transport._tls is not None
        node.transport._tls.look_again()
        dial = dialler.dial

        async def noted(to: NodeId, link: Link | None = None) -> Link:
            dialled_at.append(now_ms // 1_000)
            return await dial(to, link)

        monkeypatch.setattr(dialler, "dial", noted)
        monkeypatch.setattr(dialler, "now_ms", lambda: now_ms)
        dialler.addresses[peer] = ("127.0.0.1", free_ports(1)[0])
        for _ in range(1_400):
            await node.transport.renewal.renew_one()
            now_ms += 1_000
        rests = [later - earlier for earlier, later in pairwise(dialled_at)]
        assert rests == [5, 10, 20, 40, 80, 160, 300, 300, 300]
        assert node.transport._established[peer] is link, "it works"
        dialler.addresses[peer] = ("127.0.0.1", ports[2])
        now_ms += 300_000
        await node.transport.renewal.renew_one()
        await until(link.lost.is_set, "the other end closes the first")
        await node.transport.renewal.renew_one()
        assert (node.transport.renewal.outdated(), node.transport.renewal._tried) == ([], {})


@pytest.mark.parametrize("renewed", [1, 2], ids=["the lower id", "the higher id"])
async def test_a_peer_that_cannot_be_dialled_is_asked_to_dial_and_no_end_is_unlinked(
    tmp_path: Path, renewed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: a new certificate is shown to a peer behind a firewall without a restart. Method: a node with a new certificate
    dials a port where no process listens; its peer is asked only once that has failed.
    """
    monkeypatch.setattr("quorum.raft.renewal.OLD_ENOUGH_MS", 0)
    ours = Authority(tmp_path / "ca", cluster_id=CLUSTER)
    one, two, _ = pair_with(ours.certify("controller", "1"), ours.certify("controller", "2"))
    node, other = (one, two) if renewed == 1 else (two, one)
    peer, now_ms, sizes = other.transport.node_id, 0, set[tuple[int, int]]()
    for each in (one, two):  # by another link this end must be linked in the same turn of the loop
        each.transport.on_connected = lambda _: sizes.add(
            (len(linked(one.transport)), len(linked(two.transport)))
        )
    async with node.running(), other.running():
        await until(lambda: linked(node.transport) and linked(other.transport), "they are linked")
        sizes.clear()
        first = node.transport._established[peer]
        for each in (one, two):
            each.transport.now_ms = lambda: time.monotonic_ns() // 1_000_000 + 20 * DIAL_GRACE_MS
        monkeypatch.setattr(node.transport.dialler, "now_ms", lambda: now_ms)
        now_s = int(time.time())
        certified(ours, "controller", str(renewed), begins_s=now_s - 9, ends_s=now_s + 99 * DAY_S)
        tls = node.transport._tls
        assert tls is not None
        tls.look_again()
        node.transport.dialler.addresses[peer] = ("127.0.0.1", free_ports(1)[0])
        await node.transport.renewal.renew_one()
        await asyncio.sleep(0.1)
        await other.transport.renewal.renew_one()
        assert node.transport.renewal.outdated() == [first] and not first.lost.is_set(), "not asked yet"
        now_ms += 5_000
        await node.transport.renewal.renew_one()
        theirs = other.transport._established[NodeId(renewed)]
        await until(lambda: theirs.is_redial_asked, "the question arrives")
        await other.transport.renewal.renew_one()
        await until(lambda: first.lost.is_set() and theirs.lost.is_set(), "the first link is gone")
        assert node.transport.renewal.outdated() == [] == other.transport.renewal.outdated()
        await other.transport.renewal.renew_one()
        link = other.transport._established[NodeId(renewed)]
        shown = link.encrypted.getpeercert(binary_form=True) if link.encrypted else None
        assert shown == first_certificate(tls._files.certificate.read_bytes())
        assert sizes == {(1, 1)}
        assert not any(event[0] == "lost" and event[2] for event in (*one.events, *two.events)), "by no peer"
        say(node.transport, peer, NACK)
        await until(lambda: other.messages, "messages pass")


async def test_certificates_that_ended_are_looked_for_while_a_dial_takes_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("quorum.raft.transport.TLS_CHECK_S", 0.001)
    ours = Authority(tmp_path / "ca", cluster_id=CLUSTER)
    node, _, _ = pair_with(ours.certify("controller", "1"), ours.certify("controller", "2"))
    looked: list[str] = []

    async def forever() -> None:
        looked.append("renewing")
        await asyncio.Event().wait()

    monkeypatch.setattr(node.transport.renewal, "renew_one", forever)
    monkeypatch.setattr(node.transport, "drop_ended", lambda *_: looked.append("ended"))
    async with node.running():
        await until(
            lambda: "renewing" in looked and looked[looked.index("renewing") :].count("ended") > 2,
            "it looks on",
        )


@pytest.mark.slow
@pytest.mark.parametrize("slow_ms", [0, 5, 20, 50, 200])
@pytest.mark.parametrize("slow", [1, 2], ids=["the lower id", "the higher id"])
async def test_both_ends_renew_their_link_at_once_and_are_linked_all_the_time(
    tmp_path: Path, slow: int, slow_ms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: renewals that cross cost no election. Method: both ends begin together; the look-up of one of them is slow."""
    monkeypatch.setattr("quorum.raft.renewal.OLD_ENOUGH_MS", 0)
    ours = Authority(tmp_path / "ca", cluster_id=CLUSTER)
    one, two, _ = pair_with(ours.certify("controller", "1"), ours.certify("controller", "2"))
    loop, unlinked = asyncio.get_running_loop(), []

    def is_linked(node: Node) -> None:
        if not linked(node.transport):
            unlinked.append(node.transport.node_id)

    async with one.running(), two.running():
        await until(lambda: linked(one.transport) and linked(two.transport), "they are linked")
        firsts = [*one.transport._established.values(), *two.transport._established.values()]
        for node in (one, two):
            transport, note_lost = node.transport, node.transport.on_lost
            transport.now_ms = lambda: time.monotonic_ns() // 1_000_000 + 20 * DIAL_GRACE_MS
            transport.on_lost = lambda peer, by_peer, node=node, note=note_lost: (  # type: ignore[misc, assignment]
                note(peer, by_peer),
                loop.call_soon(is_linked, node),
            )
            who, now_s = str(transport.node_id), int(time.time())
            certified(ours, "controller", who, begins_s=now_s - 9, ends_s=now_s + 99 * DAY_S)
            assert transport._tls is not None
            transport._tls.look_again()
            assert len(transport.renewal.outdated()) == 1
        dialler = (one if slow == 1 else two).transport.dialler
        at_once = dialler.look_up

        async def look_up(address: HostPort) -> list[AddressInfo]:
            await asyncio.sleep(slow_ms / 1000)
            return await at_once(address)

        monkeypatch.setattr(dialler, "look_up", look_up)
        await asyncio.gather(*(node.transport.renewal.renew_one() for node in (one, two)))
        await until(
            lambda: (
                all(first.lost.is_set() for first in firsts)
                and len(one.transport._links) == len(two.transport._links) == 1
            ),
            "one link is left",
        )
        assert not unlinked
        assert not any(event[0] == "lost" and event[2] for event in (*one.events, *two.events)), "by no peer"
        for node, peer in ((one, two), (two, one)):
            assert node.transport.renewal.outdated() == []
            say(node.transport, peer.transport.node_id, NACK)
        await until(lambda: one.messages and two.messages, "messages pass both ways")


@pytest.mark.slow  # it waits until a certificate has ended
async def test_a_voter_whose_certificate_has_expired_is_named_with_the_reason(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Goal: the log of a node that cannot link says "expired", whichever end refuses."""
    ours = Authority(tmp_path, cluster_id=CLUSTER)
    now_s = int(time.time())
    ended = certified(ours, "controller", "2", begins_s=now_s - 99, ends_s=now_s - 9)
    first, second = free_ports(2)
    nodes = Node(1, {1: first, 2: second}), Node(2, {1: first, 2: second})
    nodes[0].transport._tls = Tls(ours.certify("controller", "1"), cluster_id=CLUSTER)
    nodes[1].transport._tls = Tls(ended, cluster_id=CLUSTER, now_ms=lambda: 1000 * (now_s - 50))
    async with nodes[0].running(), nodes[1].running():

        def reasons() -> list[str]:
            return [str(vars(r).get("detail", vars(r).get("reason"))) for r in caplog.records]

        await until(lambda: any("certificate has expired" in why for why in reasons()), "node 1 says so")
        await until(lambda: any("refuses the certificate" in why for why in reasons()), "node 2 says so")
