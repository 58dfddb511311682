"""Edge: tables are created side by side, each after what it reads."""

import subprocess
import sys
import threading

import duckdb
import pytest

from metadata_log.replay.creations import THREADS, Create, Creations

WAIT_S = 10.0


def creating(text: str) -> Create:
    return lambda connection: connection.execute(text)


def test_what_does_not_read_each_other_is_created_side_by_side() -> None:
    """Goal: no creation waits for one that it does not read. Method: as many as there are threads, each waiting for all."""
    creations = Creations(duckdb.connect())
    all_begun = threading.Barrier(THREADS)
    for name in "ab"[:THREADS]:
        creations.add(name, lambda _: all_begun.wait(WAIT_S), reads=())
    for name in "ab"[:THREADS]:
        creations.wait(name)


def test_a_table_is_created_after_what_it_reads() -> None:
    connection = duckdb.connect()
    creations = Creations(connection)
    may_begin = threading.Event()

    def slowly(of_thread: duckdb.DuckDBPyConnection) -> None:
        assert may_begin.wait(WAIT_S)
        of_thread.execute("CREATE TABLE a AS SELECT 1 AS n")

    creations.add("a", slowly, reads=())
    creations.add(
        "b", creating("CREATE TABLE b AS SELECT n + 1 AS n FROM a"), reads=("a", "a", "known to others")
    )
    may_begin.set()
    creations.wait("b")
    assert connection.sql("SELECT a.n, b.n FROM a, b").fetchall() == [(1, 2)]
    creations.wait("never added")


def test_what_can_be_created_is_created_in_the_order_in_which_it_was_added() -> None:
    creations = Creations(duckdb.connect())
    may_begin = threading.Event()
    order: list[str] = []
    for blocking in range(THREADS):
        creations.add(f"blocks {blocking}", lambda _: may_begin.wait(WAIT_S), reads=())
    creations.add("reads", lambda _: order.append("reads"), reads=("blocks 0",))
    creations.add("later", lambda _: order.append("later"), reads=("blocks 0",))
    creations.add("last", lambda _: order.append("last"), reads=("later",))
    may_begin.set()
    creations.wait_for_all()
    assert sorted(order) == ["last", "later", "reads"]
    assert order.index("last") > order.index("later")


def test_a_process_that_ends_meanwhile_says_nothing() -> None:
    """As an operator's Ctrl-C ends a report."""
    script = (
        "import time, duckdb\n"
        f"from {Creations.__module__} import Creations\n"
        "creations = Creations(duckdb.connect())\n"
        "creations.add('a', lambda _: time.sleep(0.2), reads=())\n"
        "creations.add('b', lambda _: None, reads=('a',))\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    assert ran.stdout + ran.stderr == ""


def test_what_fails_fails_what_reads_it_and_nothing_else() -> None:
    creations = Creations(duckdb.connect())
    creations.add("fails", creating("CREATE TABLE fails AS SELECT error('no such luck') AS m"), reads=())
    creations.add("reads", creating("CREATE TABLE reads AS FROM fails"), reads=("fails",))
    creations.add("other", creating("CREATE TABLE other AS SELECT 1 AS n"), reads=())
    creations.wait_for_all()
    creations.wait("other")
    for name in ("fails", "reads"):
        with pytest.raises(duckdb.Error, match="no such luck"):
            creations.wait(name)
