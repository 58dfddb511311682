"""Edge: what the host of a broker learns of its replicas, and when: nothing of an image that may be old.

Tests: tests/unit/broker_agent/test_agent_host.py.
"""

import asyncio
import logging
from collections.abc import Callable

from broker_agent.host import Host
from broker_agent.replicas import LocalReplicas, Phase
from metadata_log.image.metadata_image import Delta, MetadataImage
from metadata_log.node.pace import until_done

log = logging.getLogger(__name__)


class HostReplicas:
    """The replicas on one broker and its host; without a host nothing is to be learned."""

    def __init__(
        self,
        host: Host | None,
        replicas: LocalReplicas,
        *,
        image: Callable[[], MetadataImage],
        on_ready: Callable[[], None],
    ) -> None:
        """`image` returns the newest image; `on_ready` is called once, when the host knows all its replicas."""
        self._host = host
        self._replicas = replicas
        self._image = image
        self._on_ready = on_ready
        self._must_start = asyncio.Event()
        self.is_ready = host is None
        """Whether the host got instructions for all its replicas: before that this broker asks to stay fenced."""

    @property
    def phase(self) -> str | None:
        """How far the host got its instructions: the name of a phase of `LocalReplicas`. None: there is no host."""
        return None if self._host is None else self._replicas.phase.value

    def warnings(self) -> list[tuple[str, str]]:
        """Return the reason with which a broker says that its host does not follow the log yet, or no longer."""
        if self._host is None or self._replicas.phase is Phase.FOLLOWING:
            return []
        image_is_old = self._replicas.phase is Phase.CATCHING_UP
        done = "the image may be old" if image_is_old else f"{self._replicas.visited} compared so far"
        return [("REPLICAS_STARTING", f"the host is not told of all its replicas yet: {done}")]

    def answered(self, high_watermark: int) -> None:
        self._replicas.answered(high_watermark)

    def on_delta(self, before: MetadataImage, after: MetadataImage, delta: Delta | None) -> None:
        instructions = self._replicas.on_delta(before, after, delta)
        if self._host is not None and self._replicas.phase is not Phase.CATCHING_UP:
            self._host.carry_out(instructions, after)

    def on_progress(self, broker_epoch: int | None) -> None:
        """Begin to tell the host of its replicas if the image has caught up with the broker's registration."""
        image = self._image()
        if self._host is not None and self._replicas.may_start(image, broker_epoch):
            self._replicas.start(image, self._host.held(), known_offset=self._host.known_offset)
            self._must_start.set()

    async def keep_starting(self) -> None:
        """Tell the host of its replicas whenever the image has caught up, in slices; then the broker may be unfenced."""
        while True:
            await self._must_start.wait()
            self._must_start.clear()
            await until_done(self._start_some)
            if self._replicas.phase is not Phase.FOLLOWING:
                continue  # the image was replaced meanwhile
            log.info("replicas_started", extra={"end_offset": self._image().end_offset})
            if self._replicas.strays_withheld:
                log.warning("strays_withheld", extra={"end_offset": self._image().end_offset})
            if not self.is_ready:
                self.is_ready = True
                self._on_ready()

    def _start_some(self) -> bool:
        """Tell the host of some more of its replicas; answer False if there is nothing to tell."""
        if self._host is None or self._replicas.phase is not Phase.STARTING:
            return False
        image = self._image()
        self._host.carry_out(self._replicas.next_slice(image), image)
        return True
