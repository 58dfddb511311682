"""Edge: `storage format` and `storage info`: whose a data directory is."""

import argparse
import random
from pathlib import Path
from typing import Any

from metadata_log.ids import NodeId, random_uuid, uuid_text
from metadata_log.node.data_directory import Meta, Role, format_directory, load_meta, read_meta
from ops import render
from ops.arguments import Noun
from ops.processes import keep_files_private, running_process
from ops.settings import cluster_id, hosts_to_certify, load_for_format
from ops.talk import fail_usage, say, show


def add_parsers(noun: Noun) -> None:
    form = noun.verb(
        "format",
        "Make the data directory of one node. Never formats twice.",
        run=run_format,
        parent=noun.flags.output,
        examples=("storage format --config controller.toml --cluster-id 4L6g3nShT-eMCtK--X86sw",),
    )
    form.add_argument("--config", type=Path, required=True, metavar="FILE")
    form.add_argument(
        "--no-initial-controllers",
        action="store_true",
        help="a controller that joins a cluster: with an empty log it never founds a quorum, nor helps to found one",
    )
    form.add_argument(
        "--secure",
        action="store_true",
        help="and make certificates for a test cluster in tls/ beside FILE, with an authority of their own",
    )
    form.add_argument("--cluster-id", metavar="ID", help="22 characters; where FILE has no cluster_id")
    about = noun.verb(
        "info",
        "Show whose a data directory is, and whether its process runs.",
        run=run_info,
        parent=noun.flags.output,
        examples=("storage info --config controller.toml", "storage info metaquorum-data/controller-1"),
    )
    about.add_argument("directory", nargs="?", type=Path, metavar="DIR")
    about.add_argument("--config", type=Path, metavar="FILE")


def run_format(args: argparse.Namespace) -> int:
    """Format the directory that a settings file names; the file need not know its directory id yet."""
    keep_files_private()
    role, node_id, data_dir, in_file = load_for_format(args.config)
    if args.cluster_id is not None:
        try:
            cluster_id(args.cluster_id)
        except ValueError as error:
            fail_usage(f"--cluster-id {args.cluster_id}: {error}")
        if in_file is not None and in_file != args.cluster_id:
            fail_usage(f"--cluster-id {args.cluster_id}, but {args.config} says {in_file}")
    if args.no_initial_controllers and role != "controller":
        fail_usage(f"--no-initial-controllers is for controllers, and {args.config} is a broker's")
    chosen = args.cluster_id or in_file
    rng = random.SystemRandom()
    if chosen is None:
        fresh = uuid_text(random_uuid(rng))
        fail_usage(f"no cluster_id in {args.config} and no --cluster-id; for a new cluster take {fresh}")
    hosts = (
        hosts_to_certify(args.config) if args.secure else ()
    )  # before anything is made: the file may be wrong
    meta = format_directory(
        data_dir,
        role=role,
        node_id=NodeId(node_id),
        cluster_id=chosen,
        rng=rng,
        may_hold={args.config.name},
        only_joins=args.no_initial_controllers,
    )
    _show(args, _described(data_dir, meta))
    if args.secure:
        _certify(args.config, chosen, role, node_id, hosts)
    if role == "controller":
        if not args.no_initial_controllers:
            entry = f'directory_id = "{uuid_text(meta.directory_id)}"'
            say(
                f"a new cluster: write {entry} into the [[voters]] entry of node {node_id} in every controller's file. It "
                "begins without eligible leader replicas, unlike Kafka 4.1 and later: once all nodes run, "
                "metaquorum features upgrade eligible.leader.replicas.version=1"
            )
        say(
            f"a cluster that runs: start it, then metaquorum quorum add-voter (or replace-voter) --id {node_id}"
        )
    return 0


def _certify(config: Path, cluster: str, role: Role, node_id: int, hosts: tuple[str, ...]) -> None:
    """Make what a test cluster lacks: its authority, this node's certificate, an admin's, and the file of principals.

    The node's certificate names `hosts` beside those of loopback. Files of one cluster beside each other share all but the
    node's own.
    """
    from ops.certificates import ADMIN, HOSTS, Authority

    folder = config.parent / "tls"
    authority = Authority(folder, cluster_id=cluster)
    named = tuple(dict.fromkeys([*HOSTS, *hosts]))
    files = authority.certify(role, str(node_id), hosts=named)
    admin = authority.certify("user", ADMIN)
    authority.write_principals(config.parent / "principals.toml")
    say(
        f"write into {config}, with https:// in all its addresses and without insecure: "
        f'[tls] certificate = "tls/{files.certificate.name}" key = "tls/{files.key.name}" ca = "tls/ca.crt" '
        '[identity] principals = "principals.toml"'
    )
    say(
        f"the certificate is for the hosts {', '.join(named)}; if the node is dialled at another, make one that names it"
    )
    say(f"an admin asks with --ca {admin.ca} --cert {admin.certificate} --key {admin.key}")
    say(
        f"the authority's key, {folder / 'ca.key'}, certifies whom it likes: for more than a test, use another authority"
    )


def run_info(args: argparse.Namespace) -> int:
    """Show a directory; with --config it must be the one that the settings expect."""
    if (args.directory is None) == (args.config is None):
        fail_usage("name a data directory or --config FILE, one of them")
    if args.config is None:
        data_dir, meta = args.directory, load_meta(args.directory)
    else:
        role, node_id, data_dir, in_file = load_for_format(args.config)
        if in_file is None:
            fail_usage(f"{args.config} has no cluster_id; add it, or name the directory itself")
        meta = read_meta(data_dir, role, node_id, in_file)
    process = running_process(data_dir)
    shown = ("pid", "http", "raft", "started_at_ms", "log")
    _show(
        args,
        _described(data_dir, meta)
        | {"running": process is not None}
        | {name: None if process is None else process.get(name) for name in shown},
    )
    return 0


def _described(data_dir: Path, meta: Meta) -> dict[str, Any]:
    return {
        "role": meta.role,
        "id": meta.node_id,
        "cluster_id": meta.cluster_id,
        "directory_id": uuid_text(meta.directory_id),
        "data_dir": str(data_dir),
    }


def _show(args: argparse.Namespace, described: dict[str, Any]) -> None:
    show(args, described, table=lambda: render.fields((k, render.plain(v)) for k, v in described.items()))
