"""Edge: `certificates list|rotate|revoke`: what nodes show and trust. Tests: tests/unit/ops/verbs/test_certificates.py,
tests/cluster/test_certificates.py.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from metadata_log.errors import InvalidRequest, MetadataError
from metadata_log.node.identity.certificate_dates import DAY_S
from ops.command_line.changes import REFUSED
from ops.command_line.guard import ask_first
from ops.command_line.options import Network, Noun, Run, argument, either, flag, network, option, together
from ops.command_line.render import Column
from ops.command_line.routines import UNSAFE, Routine, routine
from ops.command_line.talk import fail_usage, say
from ops.command_line.values import existing_file, existing_path, from_to
from ops.given import SHOWN
from ops.node_commands import command_with
from ops.processes import keep_files_private
from ops.when import duration_text, parse_duration_ms

if TYPE_CHECKING:
    from metadata_log.node.identity.credentials import TlsFiles
    from ops.admin.certificate_rotation import Rotation
    from ops.admin.cluster import Cluster

ENDS: Final = 10
"""The exit code of `list --expiring` where a certificate ends in time."""
PATIENCE_S: Final = 60.0
DAYS_MAX: Final = 3_650
PLACES: Final = ("id", "role", "host", "file", "name")
LISTED: Final = (
    Column("where"),
    Column("listener"),
    Column("until"),
    Column("days_left", "DAYS"),
    Column("trusted"),
    Column("revoked", tone=lambda is_so: "bad" if is_so else ""),
    Column("uri", "NAMES"),
    Column("serial", is_wide=True),
    Column("authority", is_wide=True),
    Column("subject", is_wide=True),
    Column("from", is_wide=True),
    Column("address", is_wide=True),
    Column("sha256", is_wide=True),
)
ROTATED: Final = (Column("role"), Column("id"), Column("what"), Column("serial", is_wide=True))
NOUN: Final = Noun()
NEXT: Final = {
    "trust": "give ca.crt to all clients, and then run this again: every node gets a certificate of the new authority",
    "certify": "give users that are not in the folder certificates of the new authority; then run this again: nodes trust "
    "the new one alone",
    "retire": "the authority is replaced",
}


@NOUN.verb(
    "list",
    "List the certificates that running nodes show on each listener, or those in files, and when they end.",
    "certificates list",
    "certificates list --expiring 30d",
    "certificates list metaquorum-data/tls -o json",
)
@argument("paths", "PATH...", nargs=-1, required=False, read=existing_path)
@option(
    "--expiring",
    "expiring_ms",
    read=parse_duration_ms,
    metavar="DURATION",
    help="those alone that end within it; exit code 10 if there is one",
)
@network
def run_list(asked: Network, *, paths: tuple[Path, ...], expiring_ms: int | None) -> int:
    """List certificates; with paths, those in files and folders, and no node is asked."""
    rows = [*(_in_files(asked, paths) if paths else _shown(asked))]
    if expiring_ms is not None:
        rows = [
            one for one in rows if one["days_left"] is None or one["days_left"] * DAY_S * 1000 < expiring_ms
        ]
    rows.sort(key=lambda one: (one["days_left"] is not None, one["days_left"]))
    within = "" if expiring_ms is None else f" that ends within {duration_text(expiring_ms)}"
    asked.show_items(rows, LISTED, empty=f"no certificate{within}")
    return ENDS if expiring_ms is not None and rows else 0


def _in_files(asked: Network, paths: Sequence[Path]) -> Iterator[dict[str, Any]]:
    from ops.admin.connect import given_files
    from ops.admin.shown_certificates import described, in_files, is_revoked_beside

    authorities = _authorities(given_files({name: getattr(asked, name) for name in SHOWN}).get("ca"))
    for file, certificate in in_files(paths):
        row = {"where": str(file), "listener": None, "address": None}
        told = described(certificate, authorities, now_s=time.time())
        yield row | {"revoked": is_revoked_beside(file, certificate)} | told


def _shown(asked: Network) -> Iterator[dict[str, Any]]:
    from metadata_log.node.addresses import address_text
    from ops.admin.exchange import Unreachable
    from ops.admin.shown_certificates import described, served, targets

    show, authorities = _show(asked), _authorities(_files(asked).get("ca"))
    found = targets(asked.client())
    if not found:
        say("no node has a listener with TLS")
    for target in found:
        for listener in target.listeners:
            row: dict[str, Any] = {
                "where": target.name,
                "listener": listener.name,
                "address": address_text(listener.address),
                "revoked": None,  # a node that shows a revoked one says so itself: quorum health
            }
            try:
                certificate = served(listener.address, show)
            except Unreachable as error:
                say(f"{target.name}: {listener.name}: {error.message}")
                yield row | dict.fromkeys(one.key for one in LISTED if one.key not in row)
            else:
                yield row | described(certificate, authorities, now_s=time.time())


def _authorities(file: Path | None) -> list[Any]:
    from ops.admin.shown_certificates import in_files

    return [] if file is None else [certificate for _, certificate in in_files([file])]


def _files(asked: Network) -> dict[str, Path]:
    """Return the files that this client shows and trusts."""
    from ops.admin.connect import named

    given = {name: getattr(asked, name) for name in SHOWN}
    return named(asked.bootstrap, asked.context, given, insecure=asked.insecure).files_to_show()


def _show(asked: Network) -> "TlsFiles | None":
    from metadata_log.node.identity.credentials import TlsFiles

    files = _files(asked)
    return (
        TlsFiles(files["cert"], files["key"], files["ca"]) if {"cert", "key", "ca"} <= files.keys() else None
    )


def _bringing(*, accepts: bool) -> Callable[[Run], Run]:
    """Declare how files get to the nodes."""
    return together(
        option(
            "--install",
            read=command_with(PLACES),
            metavar="COMMAND",
            help="brings a file to a node, without a shell: {file} is to become {name} there (node.crt, node.key, "
            "ca.crt, revoked.toml); {id}, {role} and {host} are replaced, too",
        ),
        either("local", "install"),
        routine(
            dry="show what would be done, and what is unsafe; change nothing",
            local="the nodes are those of `metaquorum up --secure --dir DIR`",
            patience_s=PATIENCE_S,
            accepts=accepts,
        ),
    )


@NOUN.verb(
    "rotate",
    "Give every node a new certificate, or replace the authority in three steps, one node at a time, without a restart.",
    "certificates rotate nodes --local metaquorum-data --dry-run",
    "certificates rotate nodes --authority tls --install 'scp {file} {host}:/etc/metaquorum/tls/{name}'",
    "certificates rotate authority --local metaquorum-data",
)
@argument("what", "nodes|authority", choices=("nodes", "authority"))
@option(
    "--authority",
    "folder",
    read=existing_path,
    metavar="DIR",
    help="where ca.crt and ca.key are; default: DIR/tls of --local",
)
@option(
    "--step",
    choices=("trust", "certify", "retire"),
    help="of the authority: refuse if another step is due, as a script should",
)
@option(
    "--days",
    read=from_to(1, DAYS_MAX),
    metavar="N",
    help="for which the new certificates are valid; default: 825",
)
@_bringing(accepts=True)
def run_rotate(
    asked: Routine,
    *,
    what: str,
    folder: Path | None,
    step: str | None,
    days: int | None,
    install: Sequence[str] | None,
) -> int:
    """Rotate; interrupted, it goes on when it is run again."""
    keep_files_private()
    if step is not None and what == "nodes":
        fail_usage("--step is of `rotate authority`")
    rotation = _rotation(asked, folder, install, days=days)
    due = rotation.due() if what == "authority" else None
    if step not in (None, due):
        raise InvalidRequest(f"the step that is due is {due}, and not {step}")
    if asked.dry_run:
        return _show_rotation(asked, rotation, due)
    if asked.local is None and install is None:
        fail_usage(
            "say how a file gets to a node: --install COMMAND or --local DIR; --dry-run shows the order"
        )
    if not ask_first(_about(due), lambda: (f"{one.name}" for one in rotation.targets()), yes=asked.yes):
        return REFUSED
    going = rotation.rotate_nodes() if due is None else rotation.rotate_authority(due)
    done = [one._asdict() for one in going]
    asked.show({"step": due, "rotated": done}, table=lambda: asked.table(ROTATED, done, empty="no node"))
    if due is not None:
        say(f"step {('trust', 'certify', 'retire').index(due) + 1} of 3, {due}, is done. {NEXT[due]}")
    return 0


def _about(due: str | None) -> str:
    return {
        None: "this gives every node a new certificate and key, one at a time",
        "trust": "step 1 of 3: this makes a new authority, and lets every node trust it beside the old one",
        "certify": "step 2 of 3: this gives every node a certificate of the new authority; a client without the new ca.crt "
        "will refuse them",
        "retire": "step 3 of 3: this lets no node trust the old authority; a client with a certificate of it is refused",
    }[due]


def _rotation(
    asked: Routine, folder: Path | None, install: Sequence[str] | None, *, days: int | None
) -> "Rotation":
    from ops.admin.certificate_rotation import Rotation, authority_in
    from ops.certificates import DAYS
    from ops.node_files import installer

    if folder is None:
        if asked.local is None:
            fail_usage("name the folder of the cluster's authority: --authority DIR")
        folder = asked.local / "tls"
    client = asked.client()
    cluster_id = client.read("/v1/quorum")["cluster_id"]
    return Rotation(
        client=client,
        authority=authority_in(folder, cluster_id=cluster_id),
        cluster_id=cluster_id,
        install=installer(asked.local, install, asked.patience, cluster_id),
        show=_show(asked),
        patience_s=asked.patience,
        accepted=frozenset(asked.accepted),
        days=days or DAYS,
    )


def _show_rotation(asked: Network, rotation: "Rotation", due: str | None) -> int:
    """Show which nodes would be given what, in order, and why one cannot be."""
    unsafe = None
    try:
        found = [{"role": one.role, "id": one.id, "what": _about(due)} for one in rotation.targets()]
    except MetadataError as error:
        found, unsafe = [], error.message
    value = {"step": due, "rotated": found, "unsafe": unsafe}
    asked.show(value, table=lambda: unsafe or asked.table(ROTATED[:3], found, empty="no node has TLS"))
    return UNSAFE if unsafe else 0


@NOUN.verb(
    "revoke",
    "Let a certificate count no longer: on no port, and what it began is closed.",
    "certificates revoke lost-laptop.crt --local metaquorum-data --note 'laptop of anna'",
    "certificates revoke --serial 4f00c1 --list revoked.toml --install 'scp {file} {host}:/etc/metaquorum/tls/{name}'",
)
@argument("certificate", "FILE", required=False, read=existing_file)
@option("--serial", read=str, metavar="HEX", help="its serial number, where there is no file of it")
@option(
    "--list",
    "listed",
    read=Path,
    metavar="FILE",
    help="the list of revoked certificates; default: DIR/tls/revoked.toml of --local",
)
@option("--note", read=str, default="", may_be_empty=True, metavar="TEXT", help="for people")
@flag("--force", help="also one that a running node shows, which is cut off then")
@_bringing(accepts=False)
def run_revoke(
    asked: Routine,
    *,
    certificate: Path | None,
    serial: str | None,
    listed: Path | None,
    note: str,
    force: bool,
    install: Sequence[str] | None,
) -> int:
    """Add a certificate to the list, bring the list to the nodes, and wait until it counts on each."""
    from ops.admin.certificate_revocation import Revocation, entry_of, with_entry
    from ops.node_files import installer

    keep_files_private()
    if (certificate is None) == (serial is None):
        fail_usage("name the certificate: its FILE, or --serial HEX")
    if listed is None:
        if asked.local is None:
            fail_usage("name the list of revoked certificates: --list FILE")
        listed = asked.local / "tls" / "revoked.toml"
    entry = entry_of(certificate, serial, note)
    content = with_entry(listed, entry)
    client: Cluster | None = None
    if install is not None or asked.local is not None:
        client = asked.client()
        cluster_id = client.read("/v1/quorum")["cluster_id"]
        bring = installer(asked.local, install, asked.patience, cluster_id)
        revocation = Revocation(client=client, install=bring, show=_show(asked), patience_s=asked.patience)
        revocation.check_is_shown_by_no_node(entry, force=force)
    what = (
        f"this revokes the certificate {entry.name}: what it began is closed, and it is refused from now on"
    )
    result = {"list": str(listed), **entry.shown(), "written": not asked.dry_run, "nodes": []}
    if not asked.dry_run:
        if not ask_first(what, lambda: (f"the list is {listed}",), yes=asked.yes):
            return REFUSED
        entry.write(listed, content)
        if client is not None:
            result["nodes"] = revocation.bring(listed)
    asked.show_fields(result)
    if client is None and not asked.dry_run:
        say(f"bring {listed} to every node, where [tls] revoked names it: each reads it within 5 s")
    return 0
