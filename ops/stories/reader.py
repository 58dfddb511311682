"""Edge: `python -m ops.stories.reader BOOTSTRAP TOPIC GROUP`: a consumer with automatic commits, which a story may kill.

Each line of its standard input is a number of records to have processed in all. It prints `processed N` once it has, and
`committed N` for each offset that the client committed by itself. It ends with its input.
Tests: tests/kafka/stories.
"""

import queue
import sys
import threading
from typing import Final

from confluent_kafka import Consumer, KafkaError, TopicPartition

from ops.kafka.clients import settings

COMMIT_EVERY_MS: Final = 5_000
"""As by default, in Kafka's client and here."""
SESSION_MS: Final = 6_000
POLL_S: Final = 0.05


def main() -> int:
    bootstrap, topic, group = sys.argv[1:]
    orders: queue.SimpleQueue[int | None] = queue.SimpleQueue()
    threading.Thread(target=_read_orders, args=(orders,), daemon=True).start()
    chosen = settings(
        bootstrap.split(","),
        group_id=group,
        enable_auto_commit=True,
        auto_commit_interval_ms=COMMIT_EVERY_MS,
        auto_offset_reset="earliest",
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=300,
    )
    consumer = Consumer(chosen | {"on_commit": _committed})
    consumer.subscribe([topic])
    processed = wanted = 0
    while True:
        if processed == wanted:
            consumer.pause(consumer.assignment())
            consumer.poll(POLL_S)
            if orders.empty():
                continue
            order = orders.get()
            if order is None:
                return 0
            wanted = order
            consumer.resume(consumer.assignment())
        message = consumer.poll(POLL_S)
        if message is not None and message.error() is None:
            processed += 1
            if processed == wanted:
                print(f"processed {processed}", flush=True)


def _read_orders(orders: "queue.SimpleQueue[int | None]") -> None:
    for line in sys.stdin:
        orders.put(int(line))
    orders.put(None)


def _committed(error: KafkaError | None, partitions: list[TopicPartition]) -> None:
    if error is None:
        for partition in partitions:
            print(f"committed {partition.offset}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
