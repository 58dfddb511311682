"""Edge: `storage import-kafka|export-kafka`: a Kafka cluster's controllers are replaced by ours, and the other way round.
Tests: tests/unit/ops/verbs/test_storage_kafka.py.
"""

import random
import socket
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from metadata_log.errors import InvalidRequest
from metadata_log.node.addresses import address_text
from metadata_log.wire.shapes import INT32_MAX
from ops.command_line.options import Output, Run, argument, flag, option, output, together
from ops.command_line.render import fields, plain
from ops.command_line.talk import fail_usage, patience, say
from ops.command_line.values import existing_path, from_to
from ops.processes import keep_files_private

if TYPE_CHECKING:
    from metadata_log.image.metadata_image import MetadataImage
    from ops.takeover.kafka_state import KafkaState
    from ops.takeover.obstacles import Obstacle

LISTENS_S: Final = 2.0
"""A controller that runs takes a connection in some milliseconds."""


def _shared(config_help: str, dry_run_help: str, *more: Callable[[Run], Run]) -> Callable[[Run], Run]:
    """Declare what both verbs take."""
    return together(
        argument("directories", "DIR...", nargs=-1, required=True, read=existing_path),
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


def _codes() -> Collection[str]:
    from ops.takeover.obstacles import CODES

    return CODES


def _code(text: str) -> str:
    if text not in _codes():
        raise ValueError(f"{text!r} is none of {', '.join(_codes())}")
    return text


shared_import = _shared(
    "of a controller of ours; repeated, one for each that votes",
    "show what would be taken, and what would be lost; write nothing",
    flag("--drop", help="go on without what has no counterpart here, as --dry-run lists it"),
    option(
        "--accept",
        read=_code,
        words=_codes,
        multiple=True,
        metavar="CODE",
        help="what --dry-run lists as refused, and does not matter; may be repeated",
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
    accept: tuple[str, ...],
    voters_unknown: bool,
    dry_run: bool,
) -> int:
    """Make the directories of our controllers from those that Kafka's stopped controllers left."""
    from ops.settings import load_controller_settings
    from ops.takeover.kafka_state import is_running, kafka_state
    from ops.takeover.obstacles import combined_nodes, hints, obstacles, topics_with_tiers
    from ops.takeover.progress import Progress
    from ops.takeover.taking_over import begun_with, check_may_take_over, take_over

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
    for line in (*state.left_out, *map(_still_running, running), *hints(state, controllers)):
        say(line)
    if state.voters is None:
        say("no directory says who votes in Kafka's quorum: be sure that those of a majority are named")
    refused = [each for each in obstacles(state, controllers) if each.code not in accept]
    if dry_run:
        for each in refused:
            say(f"would be refused: {each.code}: {each.detail}")
    else:
        _check_agreed(begun.lost, drop, refused)
        with patience("the directories are being written"):
            image = take_over(image, controllers)
    told = (
        {
            "taken_from": str(state.of.path),
            "of_controller": state.of.node_id,
            "kafka_end_offset": state.image.end_offset,
            "kafka_epoch": state.epoch,
            "not_known_to_be_committed": state.only_here,
            "left_out": list(state.left_out),
            "lost": dict(begun.lost),
            "refused": [each._asdict() for each in refused],
            "topics_with_tiers": topics_with_tiers(state.image),
            "combined_nodes": combined_nodes(state),
        }
        | _described(image)
        | {
            "controllers": {str(each.node_id): str(each.data_dir) for each in controllers},
            "written": not dry_run,
        }
    )
    in_a_table = {**told, "refused": [each.code for each in refused]}
    asked.show(told, table=lambda: fields((key, plain(item)) for key, item in in_a_table.items()))
    if not dry_run:
        _say_what_comes(state)
    return 0


def _check_agreed(lost: Mapping[str, int], drop: bool, refused: "Sequence[Obstacle]") -> None:
    """Check that the operator accepts what stands against a takeover, and what it costs."""
    if refused:
        first, *others = refused
        more = f". Refused, too: {', '.join(each.code for each in others)} (see --dry-run)" if others else ""
        raise InvalidRequest(
            f"{first.code}: {first.detail}. To go on all the same: --accept {first.code}{more}"
        )
    if lost and not drop:
        raise InvalidRequest(
            f"this would be lost: {_listed(lost)}. Look at it with --dry-run; go on without it with --drop"
        )


def _still_running(path: Path) -> str:
    return f"{path}: a process of Kafka's runs in it: its log goes on behind what is shown"


def _check_stopped(image: "MetadataImage") -> None:
    """Check that none of Kafka's controllers listens: brokers would follow two quorums."""
    from ops.takeover.obstacles import listeners_of

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
        kafkas_features,
        read_controller,
        stopped_state,
    )

    controllers = [read_controller(each) for each in config]
    for each in controllers:
        if not all(path.is_absolute() for path in each.directories):
            say(f"controller {each.node_id}: log.dirs is relative: start it where this command runs")
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
            "features": kafkas_features(image),
            "controllers": {
                str(each.node_id): [*map(str, each.placed().directories)] for each in controllers
            },
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
