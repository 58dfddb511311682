"""The log directories of the simulated brokers: they fail, come back or are replaced, are cordoned, and replicas move.

A directory that fails takes its replicas along until the process ends; a broker that lost its last one ends. What lay there
is back once the disk is mended, or lost for good with it. A process that starts with a directory which failed before started
after an unclean end, as Kafka's: there was nothing to write the mark of a clean one to.

A disk is lost for good only where `DataPlane.may_lose` says that Kafka's rules survive it, as the power is.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from metadata_log.ids import BrokerId, Uuid
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.image.topics import PartitionKey
from tests.simulation.rules.batches import ASSIGNED
from tests.simulation.rules.rule import rule
from tests.support.replica_log import Disks

if TYPE_CHECKING:
    from tests.simulation.world.cluster_broker import SimulatedBroker
    from tests.simulation.world.data_host import DataHost
    from tests.simulation.world.data_plane import DataPlane


DIRECTORIES: Final = (1, 2, 2, 3)
"""A broker has so many."""
FAULTS_PER_FAILURE: Final = 4.0
"""So many faults of brokers befall for each directory that fails, is cordoned, or gets another's replica."""
MENDED_SECONDS: Final = (0.5, 8.0)
MOVED_AND_FAILS: Final = 0.4
"""The share of moves of a replica after which the directory that it is moved to fails."""
MENDED_AT_START: Final = 0.6


class DataDirectories:
    """The directories of all brokers of one world."""

    nothing_placed_in_cordoned = rule("no new topic is placed on a broker with cordoned directories alone")

    def __init__(self, data: "DataPlane") -> None:
        self._data = data
        self._world = data.world
        self._rng = data.rng
        self._made = 0
        self._lost: set[Uuid] = set()
        """Directories that failed for good, and are not replaced yet."""

    def _new(self, broker_id: BrokerId) -> Uuid:
        self._made += 1
        return Uuid((1_000 * self._made + broker_id).to_bytes(16, "little"))

    def open(self, broker: "SimulatedBroker") -> tuple[Uuid, ...]:
        """Return the directories with which a process starts; some that failed are mended or replaced by now."""
        data, broker_id = self._data, broker.broker_id
        if broker_id not in data.disks:
            count = self._rng.choice(DIRECTORIES)
            data.disks[broker_id] = Disks(tuple(self._new(broker_id) for _ in range(count)))
        disks = data.disks[broker_id]
        must_mend = not self._world.is_rough or not disks.sound()
        if disks.failed and (must_mend or self._rng.random() < MENDED_AT_START):
            for directory in sorted(disks.failed):
                self._mend(broker_id, disks, directory)
            broker.previous_epoch = -1
        return disks.sound()

    def _mend(self, broker_id: BrokerId, disks: Disks, directory: Uuid) -> None:
        if directory not in self._lost:
            disks.failed.discard(directory)
            return
        registered = self._world.image.brokers.get(broker_id)
        for key, log in disks.logs.items():
            if log.directory == directory and registered is not None:
                self._data.cut_logs[broker_id, key] = registered.broker_epoch
        disks.replace(directory, self._new(broker_id))
        self._lost.discard(directory)

    def cordoned(self, broker_id: BrokerId) -> tuple[Uuid, ...]:
        return tuple(sorted(self._data.disks[broker_id].cordoned))

    def has_lost(self, broker_id: BrokerId, key: PartitionKey) -> bool:
        """Answer whether a replica lay in a directory that is lost, and not replaced yet."""
        log = self._data.disks[broker_id].logs.get(key)
        return log is not None and log.directory in self._lost

    # --- the weather

    def weather(self, every: float | None) -> list[tuple[float | None, Callable[[], None]]]:
        mean = None if every is None else FAULTS_PER_FAILURE * every
        return [(mean, self._fail_any), (mean, self._cordon), (mean, self._move)]

    def _any_host(self) -> "DataHost | None":
        running = [host for host in self._data.hosts.values() if host.is_running]
        return self._rng.choice(running) if running else None

    def _fail_any(self) -> None:
        host, rng = self._any_host(), self._rng
        if host is None:
            return
        sound = host.disks.sound()
        directory = rng.choice(sound)
        keys = [key for key, log in host.disks.logs.items() if log.directory == directory]
        is_lost = rng.random() < 0.5 and self._data.may_lose(host.broker_id, keys)
        self.fail(host, directory)
        self._world.faults["directory lost" if is_lost else "directory failed"] += 1
        if is_lost:
            self._lose(host, directory, keys)
        broker = host.broker
        if len(sound) == 1:
            broker.crash()
            self._world.loop.call_later(
                rng.uniform(*MENDED_SECONDS), self._world.start_broker, broker, broker.runs
            )
        else:
            self._world.loop.call_later(rng.uniform(*MENDED_SECONDS), self._restart, broker, broker.runs)

    def fail(self, host: "DataHost", directory: Uuid) -> None:
        self._world.tell(host.broker, f"loses directory {directory[:4].hex()} of {len(host.disks.sound())}")
        host.fail_directory(directory)
        session = host.broker.session
        assert session is not None
        session.offline_log_dirs = (*session.offline_log_dirs, directory)

    def _lose(self, host: "DataHost", directory: Uuid, keys: list[PartitionKey]) -> None:
        self._lost.add(directory)
        for key in keys:
            log = host.disks.logs[key]
            self._world.consequences["records lost with a disk"] += log.end_offset
            log.truncate(0)

    def _restart(self, broker: "SimulatedBroker", run: int) -> None:
        """Start a process anew, whose disks are to be mended."""
        if broker.session is None or broker.runs != run or not self._world.is_rough:
            return
        if self._rng.random() < 0.5:
            broker.crash()
        else:
            broker.session.want_shut_down = True
        self._world.loop.call_later(
            self._rng.uniform(0.3, 3.0), self._world.start_broker, broker, broker.runs
        )

    def _cordon(self) -> None:
        host, rng = self._any_host(), self._rng
        if host is None:
            return
        disks = host.disks
        most = len(disks.directories) if rng.random() < 0.2 else len(disks.directories) - 1
        self._set_cordoned(host, set(rng.sample(disks.directories, rng.randint(0, most))))
        self._world.faults["directories cordoned"] += 1

    def _set_cordoned(self, host: "DataHost", cordoned: set[Uuid]) -> None:
        host.disks.cordoned = cordoned
        if host.broker.session is not None:
            host.broker.session.cordoned_log_dirs = self.cordoned(host.broker_id)

    def _move(self) -> None:
        """Let an operator move a replica to another directory of its broker."""
        host, rng = self._any_host(), self._rng
        if host is None or not host.replicas or len(host.disks.sound()) < 2:
            return
        replica, directory = rng.choice([*host.replicas.values()]), rng.choice(host.disks.sound())
        host.move(replica.key, directory)
        self._world.faults["replica moved"] += 1
        if rng.random() < MOVED_AND_FAILS:
            run = host.broker.runs
            self._world.loop.call_later(rng.uniform(0.0, 0.2), self._fail_moved, host, run, directory)

    def _fail_moved(self, host: "DataHost", run: int, directory: Uuid) -> None:
        """Let a directory fail to which a replica is being moved: the report of the move may come behind the failure."""
        sound = host.disks.sound()
        if host.broker.runs == run and directory in sound and len(sound) > 1 and self._world.is_rough:
            self.fail(host, directory)
            self._world.faults["directory failed"] += 1
            self._world.loop.call_later(
                self._rng.uniform(*MENDED_SECONDS), self._restart, host.broker, host.broker.runs
            )

    def check_placement(self, image: MetadataImage, topic: str, replicas: tuple[BrokerId, ...]) -> None:
        if topic.startswith(ASSIGNED):
            return  # a client chose these brokers
        for broker_id in replicas:
            broker = image.brokers[broker_id]
            if set(broker.log_dirs) <= set(broker.cordoned_log_dirs or ()):
                raise self.nothing_placed_in_cordoned(
                    f"{topic} is placed on {broker_id} at {image.end_offset}"
                )

    # --- the calm at the end

    def end_faults(self) -> None:
        """Cordon nothing any more, and end the processes whose disks failed: they start on sound ones."""
        for host in self._data.hosts.values():
            self._set_cordoned(host, set())
            if host.is_running and host.disks.failed:
                host.broker.crash()
