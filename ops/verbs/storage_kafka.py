"""Edge: `storage import-kafka|export-kafka`: a Kafka cluster's controllers are replaced by ours, and the other way round.
Tests: tests/unit/ops/verbs/test_storage_kafka.py.
"""

import random
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from metadata_log.errors import InvalidRequest
from metadata_log.node.addresses import address_text
from metadata_log.wire.shapes import INT32_MAX
from ops.options import Output, R, argument, flag, option, output
from ops.processes import keep_files_private
from ops.talk import fail_usage, patience, say
from ops.values import existing_path, from_to

if TYPE_CHECKING:
    from metadata_log.image.metadata_image import MetadataImage
    from ops.takeover.kafka_state import KafkaState

LISTENS_S: Final = 2.0
"""A controller that runs takes a connection in some milliseconds."""


def _shared(config_help: str, dry_run_help: str, *more: Any) -> Any:
    """Declare what both verbs take."""

    def declare(run: R) -> R:
        for each in reversed(
            (
                argument("directories", "DIR", nargs=-1, required=True, read=existing_path),
                option(
                    "--config",
                    read=existing_path,
                    required=True,
                    multiple=True,
                    metavar="FILE",
                    help=config_help,
                ),
                option(
                    "--gone",
                    read=from_to(0, INT32_MAX),
                    multiple=True,
                    metavar="ID",
                    help="a voter whose directory is lost for ever; may be repeated",
                ),
                *more,
                flag("--dry-run", help=dry_run_help),
                output,
            )
        ):
            run = each(run)
        return run

    return declare


shared_import = _shared(
    "of a controller of ours; repeated, one for each that votes",
    "show what would be taken, and what would be lost; write nothing",
    flag("--drop", help="go on without what has no counterpart here, as --dry-run lists it"),
    flag(
        "--brokers-told",
        help="each broker knows our addresses: go on where none is one of Kafka's fixed voters (kraft.version 0)",
    ),
    flag(
        "--voters-unknown",
        help="go on where no directory says who votes: those of a majority are named, the newest among them",
    ),
)
shared_export = _shared(
    "the properties of one of Kafka's controllers; repeated, one for each that votes",
    "show what would be written, and where; write nothing",
)


def run_import(
    asked: Output,
    *,
    directories: tuple[Path, ...],
    config: tuple[Path, ...],
    gone: tuple[int, ...],
    drop: bool,
    brokers_told: bool,
    voters_unknown: bool,
    dry_run: bool,
) -> int:
    """Make the directories of our controllers from those that Kafka's stopped controllers left."""
    from ops.settings import load_controller_settings
    from ops.takeover.kafka_state import is_running, kafka_state
    from ops.takeover.progress import Progress
    from ops.takeover.taking_over import begun_with, check_may_take_over, not_found_by_brokers, take_over

    keep_files_private()
    controllers = [load_controller_settings(each) for each in config]
    running = [path for path in directories if is_running(path)]
    if running and not dry_run:
        fail_usage(f"{running[0]}: a process of Kafka's runs in it: stop all of Kafka's controllers first")
    with patience("Kafka's log is being read"):
        state = kafka_state(
            directories,
            gone=gone,
            voters_unknown=voters_unknown,
            rng=random.SystemRandom(),
            progress=Progress(say),
        )
    if not dry_run:
        _check_stopped(state.image)
    begun = begun_with(state, controllers)
    image = check_may_take_over(controllers, begun.image)
    for line in (*state.left_out, *map(_still_running, running)):
        say(line)
    if state.voters is None:
        say("no directory says who votes in Kafka's quorum: be sure that those of a majority are named")
    unfound = None if brokers_told else not_found_by_brokers(state, controllers)
    if dry_run and unfound is not None:
        say(f"would be refused: {unfound}")
    if not dry_run:
        _check_agreed(begun.lost, drop, unfound)
    if not dry_run:
        with patience("the directories are being written"):
            image = take_over(image, controllers)
    asked.show_fields(
        {
            "taken_from": str(state.of.path),
            "of_controller": state.of.node_id,
            "kafka_end_offset": state.image.end_offset,
            "kafka_epoch": state.epoch,
            "not_known_to_be_committed": state.only_here,
            "left_out": list(state.left_out),
            "lost": dict(begun.lost),
        }
        | _described(image)
        | {
            "controllers": {str(each.node_id): str(each.data_dir) for each in controllers},
            "written": not dry_run,
        }
    )
    if not dry_run:
        _say_what_comes(state)
    return 0


def _check_agreed(lost: Mapping[str, int], drop: bool, unfound: str | None) -> None:
    """Check that the operator accepts what a takeover costs."""
    if unfound is not None:
        raise InvalidRequest(
            f"{unfound}. Where that is done, or where the setting has ours under another name of their hosts, say so: "
            "--brokers-told"
        )
    if lost and not drop:
        raise InvalidRequest(
            f"this would be lost: {_listed(lost)}. Look at it with --dry-run; go on without it with --drop"
        )


def _still_running(path: Path) -> str:
    return f"{path}: a process of Kafka's runs in it: its log goes on behind what is shown"


def _check_stopped(image: "MetadataImage") -> None:
    """Check that none of Kafka's controllers listens: brokers would follow two quorums."""
    from ops.takeover.taking_over import listeners_of

    asked = set[tuple[str, int]]()
    for node_id, endpoint in listeners_of(image):
        address = (endpoint.host, endpoint.port)
        if address in asked:
            continue
        asked.add(address)
        try:
            socket.create_connection(address, timeout=LISTENS_S).close()
        except ConnectionRefusedError:
            continue
        except OSError as error:
            # A host that is cut off from here, or frozen, may run on: only its operator knows.
            where = address_text(address)
            say(f"{where} was not reached ({error}): make sure that Kafka's controller {node_id} has stopped")
            continue
        fail_usage(
            f"{address_text(address)} listens, where Kafka's controller {node_id} was: stop what runs there first"
        )


def _say_what_comes(state: "KafkaState") -> None:
    say(
        "start the controllers; the brokers go on by themselves if controller.quorum.bootstrap.servers names them"
    )
    if not state.image.quorum.kraft_version:
        say(
            "Kafka's quorum was named by controller.quorum.voters (kraft.version 0): put "
            "controller.quorum.bootstrap.servers with all our addresses in its place, when a broker is restarted next"
        )
    say(
        "Kafka's directories stay as they are: keep them until you are sure, and never start controllers in them again"
    )


def run_export(
    asked: Output,
    *,
    directories: tuple[Path, ...],
    config: tuple[Path, ...],
    gone: tuple[int, ...],
    dry_run: bool,
) -> int:
    """Make the directories of Kafka's controllers from those of our stopped controllers."""
    from ops.takeover.giving_back import (
        check_may_give_back,
        give_back,
        given_back,
        read_controller,
        stopped_state,
    )

    controllers = [read_controller(each) for each in config]
    with patience("the log is being read"):
        survivor, source = stopped_state(directories, gone=gone)
    image, directory_ids = given_back(survivor, controllers)
    check_may_give_back(controllers)
    if not dry_run:
        with patience("the directories are being written"):
            give_back(image, controllers, directory_ids)
    asked.show_fields(
        {
            "taken_from": str(source),
            "our_end_offset": survivor.image.end_offset,
            "our_epoch": survivor.epoch,
            "deleted_topics_left_out": len(survivor.image.topics.deleted),
        }
        | _described(image)
        | {
            "controllers": {str(each.node_id): [*map(str, each.directories)] for each in controllers},
            "written": not dry_run,
        }
    )
    if not dry_run:
        say("start Kafka's controllers; never start ours in these directories again")
    return 0


def _described(image: "MetadataImage") -> dict[str, Any]:
    from metadata_log.digest import digest

    return {
        "cluster_id": image.quorum.cluster_id,
        "end_offset": image.end_offset,
        "controller_epoch": image.controller_epoch,
        "features": dict(sorted(image.features.items())),
        "brokers": len(image.brokers),
        "topics": len(image.topics.by_id),
        "partitions": sum(len(topic.partitions) for topic in image.topics.by_id.values()),
        "settings": sum(map(len, image.configs.values())),
        "acls": sum(1 for _ in image.acls.by_id),
        "quotas": sum(map(len, image.quotas.values())),
        "credentials": len(image.users),
        "delegation_tokens": len(image.tokens),
        "digest": digest(image),
    }


def _listed(lost: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in lost.items())
