"""Edge: `storage format|info`: whose a data directory is. What `info` shows is in `storage_info.py`;
`import-kafka|export-kafka` are in `storage_kafka.py`, `import-zookeeper` in `import_zookeeper.py`.
"""

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NoReturn

from metadata_log.errors import ForeignDirectory, InvalidRequest
from metadata_log.ids import NodeId, random_uuid, uuid_text
from metadata_log.node.disk.data_directory import (
    Meta,
    Role,
    format_directory,
    is_fresh,
    load_meta,
    only_joins,
    read_meta,
)
from ops.command_line.options import Noun, Output, argument, flag, option, output
from ops.command_line.talk import fail_usage, say
from ops.founding import credential, feature_level
from ops.processes import keep_files_private
from ops.settings import hosts_to_certify, load_for_format, load_for_founding
from ops.settings_values import cluster_id
from ops.verbs import import_zookeeper, storage_info, storage_kafka
from quorum.decide.founding import chosen
from quorum.node.bootstrap import content_of

NOUN: Final = Noun()


@NOUN.verb(
    "format",
    "Make the data directory of one node. Never formats twice.",
    "storage format --config controller.toml --cluster-id 4L6g3nShT-eMCtK--X86sw",
    "storage format --config controller.toml --release-version 4.1 --feature group.version=0",
    "storage format --config controller.toml --add-scram 'SCRAM-SHA-256=[name=admin,password=admin-secret]'",
)
@option("--config", read=Path, required=True, metavar="FILE")
@flag(
    "--no-initial-controllers",
    help="a controller that joins a cluster: with an empty log it never founds a quorum, nor helps to found one",
)
@flag(
    "--secure",
    help="and make certificates for a test cluster in tls/ beside FILE, with an authority of their own",
)
@flag(
    "--ignore-formatted",
    help="a directory that is formatted for this node and cluster is left as it is, and is no error",
)
@option("--cluster-id", "cluster", metavar="ID", help="22 characters; where FILE has no cluster_id")
@option(
    "--release-version",
    metavar="RELEASE",
    help="of a new cluster: the levels of features with which this release of Kafka begins (4.1, or 4.1-IV1)",
)
@option(
    "--feature",
    "features",
    multiple=True,
    read=feature_level,
    metavar="NAME=LEVEL",
    help="of a new cluster: one feature's level; may be repeated",
)
@option(
    "--add-scram",
    multiple=True,
    metavar="CREDENTIAL",
    help="of a new cluster: a user that can log in from the beginning, as in the example; may be repeated",
)
@output
def run_format(
    asked: Output,
    *,
    config: Path,
    no_initial_controllers: bool,
    secure: bool,
    ignore_formatted: bool,
    cluster: str | None,
    release_version: str | None,
    features: Sequence[tuple[str, int]],
    add_scram: Sequence[str],
) -> int:
    """Format the directory that a settings file names; the file need not know its directory id yet.

    What a new cluster begins with is to be the same on all its first controllers: the one that leads first writes its own.
    """
    keep_files_private()
    role, node_id, data_dir, in_file = load_for_format(config)
    if no_initial_controllers and role != "controller":
        fail_usage(f"--no-initial-controllers is for controllers, and {config} is a broker's")
    rng = random.SystemRandom()
    bootstrap: bytes | None = None
    if release_version is not None or features or add_scram:
        if role != "controller" or no_initial_controllers:
            fail_usage(
                "--release-version, --feature and --add-scram are for controllers that found a cluster"
            )
        bootstrap = _bootstrap(config, release_version, features, add_scram, rng)
    cluster_of = _chosen(cluster, in_file, config, rng)
    hosts = hosts_to_certify(config) if secure else ()  # before anything is made: the file may be wrong
    kept = _formatted(data_dir, role, node_id, cluster_of) if ignore_formatted else None
    if kept is not None and role == "controller":
        _check_founds_as_asked(data_dir, joins=no_initial_controllers)
    meta = kept or format_directory(
        data_dir,
        role=role,
        node_id=NodeId(node_id),
        cluster_id=cluster_of,
        rng=rng,
        may_hold={config.name},
        only_joins=no_initial_controllers,
        bootstrap=bootstrap,
    )
    _show(asked, _described(data_dir, meta))
    if secure:
        _certify(config, cluster_of, role, node_id, hosts)
    if kept is not None:
        say(f"{data_dir} was formatted already, and is left as it is")
        if bootstrap is not None:
            say("--release-version, --feature and --add-scram changed nothing: they count for a first format")
    elif role == "controller":
        if not no_initial_controllers:
            entry = f'directory_id = "{uuid_text(meta.directory_id)}"'
            say(
                f"a new cluster: write {entry} into the [[voters]] entry of node {node_id} in every controller's file"
            )
        if bootstrap is not None:
            say(
                "format the other controllers of the new cluster with the same options: the one that leads first founds it "
                "with its own"
            )
        say(
            f"a cluster that runs: start it, then metaquorum quorum add-voter (or replace-voter) --id {node_id}"
        )
    return 0


def _formatted(data_dir: Path, role: Role, node_id: int, cluster_of: str) -> Meta | None:
    """Return whose a directory is if it is formatted for this node; one of another node is refused by the format."""
    if not (data_dir / "meta.json").exists():
        return None
    meta = load_meta(data_dir)
    is_ours = (meta.role, meta.node_id, meta.cluster_id) == (role, node_id, cluster_of)
    return meta if is_ours else None


def _check_founds_as_asked(data_dir: Path, *, joins: bool) -> None:
    """Check that a controller that has not begun was formatted with --no-initial-controllers if that is asked for, else not.

    Raises:
        ForeignDirectory: it would found a second quorum, or none.
    """
    if is_fresh(data_dir) and only_joins(data_dir) != joins:
        raise ForeignDirectory(
            f"{data_dir}: was formatted {'without' if joins else 'with'} --no-initial-controllers, and its controller has "
            "not begun: move it away and format again, or give the same option as then",
            path=str(data_dir),
        )


def _bootstrap(
    config: Path,
    release: str | None,
    features: Sequence[tuple[str, int]],
    credentials: Sequence[str],
    rng: random.Random,
) -> bytes:
    """Return the file that says with what the controller founds a cluster."""
    for_kafka, levels = load_for_founding(config)
    try:
        founding = chosen(
            release=release,
            features=features,
            credentials=[credential(text, rng) for text in credentials],
            otherwise=levels.founding_metadata_version,
            unstable=levels.unstable_levels,
            for_kafka=for_kafka,
        )
    except (ValueError, InvalidRequest) as refused:
        _refuse(refused)
    return content_of(founding)


def _refuse(refused: ValueError | InvalidRequest) -> NoReturn:
    """End with the reason alone: an option may hold a password."""
    fail_usage(refused.message if isinstance(refused, InvalidRequest) else str(refused))


def _chosen(given: str | None, in_file: str | None, config: Path, rng: random.Random) -> str:
    """Return the cluster id that is given, which may not contradict the file's, else the file's."""
    if given is not None:
        try:
            cluster_id(given)
        except ValueError as error:
            fail_usage(f"--cluster-id {given}: {error}")
        if in_file is not None and in_file != given:
            fail_usage(f"--cluster-id {given}, but {config} says {in_file}")
    chosen = given or in_file
    if chosen is None:
        fresh = uuid_text(random_uuid(rng))
        fail_usage(f"no cluster_id in {config} and no --cluster-id; for a new cluster take {fresh}")
    return chosen


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


@NOUN.verb(
    "info",
    "Show whose a data directory is, with what its cluster was to be founded, and whether its process runs.",
    "storage info --config controller.toml",
    "storage info metaquorum-data/controller-1",
    "storage info /var/lib/kafka/metadata",
)
@argument("directory", "DIR", required=False, read=Path)
@option("--config", read=Path, metavar="FILE")
@output
def run_info(asked: Output, *, directory: Path | None, config: Path | None) -> int:
    """Show a directory, ours or Kafka's; with --config it must be the one that the settings expect."""
    if config is not None and directory is None:
        role, node_id, data_dir, in_file = load_for_format(config)
        if in_file is None:
            fail_usage(f"{config} has no cluster_id; add it, or name the directory itself")
        meta = read_meta(data_dir, role, node_id, in_file)
    elif directory is not None and config is None:
        if storage_info.is_kafkas(directory):
            _show(asked, storage_info.of_kafkas(directory))
            return 0
        data_dir, meta = directory, load_meta(directory)
    else:
        fail_usage("name a data directory or --config FILE, one of them")
    _show(asked, _described(data_dir, meta) | storage_info.of_ours(data_dir))
    return 0


NOUN.verb(
    "import-kafka",
    "Take over a Kafka cluster: make the directories of our controllers from those of Kafka's, which are stopped.",
    "storage import-kafka /var/lib/kafka/metadata --config controller.toml --dry-run",
    "storage import-kafka k1/metadata k2/metadata k3/metadata --config c1.toml --config c2.toml --config c3.toml",
)(storage_kafka.shared_import(storage_kafka.run_import))
NOUN.verb(
    "export-kafka",
    "And back: make the directories of Kafka's controllers from those of ours, which are stopped.",
    "storage export-kafka metaquorum-data/controller-1 --config controller.properties --dry-run",
    "storage export-kafka c1/data c2/data c3/data --config k1.properties --config k2.properties",
)(storage_kafka.shared_export(storage_kafka.run_export))


NOUN.verb(
    "import-zookeeper",
    "Take over a Kafka 3.9 under ZooKeeper: make the directories of our controllers from its ensemble. Brokers are stopped.",
    "storage import-zookeeper zoo1:2181,zoo2:2181/kafka --config controller.toml --dry-run",
    "storage import-zookeeper zoo1:2181,zoo2:2181/kafka --config c1.toml --config c2.toml --config c3.toml",
)(import_zookeeper.declared(import_zookeeper.run_import))


def _described(data_dir: Path, meta: Meta) -> dict[str, Any]:
    return {
        "role": meta.role,
        "id": meta.node_id,
        "cluster_id": meta.cluster_id,
        "directory_id": uuid_text(meta.directory_id),
        "data_dir": str(data_dir),
    }


def _show(asked: Output, described: dict[str, Any]) -> None:
    asked.show(described, table=lambda: storage_info.table(described))
