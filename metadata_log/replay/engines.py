"""Edge: the two SQL engines behind one face: Spark, and DuckDB for answers in milliseconds.
Tests: tests/spark/test_replay.py, tests/unit/metadata_log/replay/test_library.py.
"""

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from functools import reduce
from itertools import takewhile
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any, Final, Literal, NewType, Protocol, TypeVar

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from metadata_log.errors import InvalidRequest
from metadata_log.replay.analyses import duckdb_text, spark_steps
from metadata_log.replay.catalog import TABLES
from metadata_log.replay.creations import Creations
from metadata_log.replay.failing import Failing
from metadata_log.replay.tables import moved_on

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection, DuckDBPyRelation
    from pyspark.sql import DataFrame, SparkSession

Table = TypeVar("Table")
Made = NewType("Made", object)
"""A table of either engine, the name of a view of DuckDB or a DataFrame of Spark: nothing but its engine looks into it."""


class Engine(Protocol[Table]):
    """Tables are lazy: nothing is computed before `arrow`, but what is kept (also within an analysis, in Spark), and what a
    quick engine reads or analyses.
    """

    name: str
    keeps_shared: bool
    """Whether what several tables are made of is computed once, when the first of them is asked for."""

    def parquet(
        self, files: Sequence[Path], *, schema: pa.Schema | None = None, where: str = "true"
    ) -> Table:
        """Return the rows of files, their columns matched by name: null where a file lacks one.

        With `schema`, the table has exactly its columns; without, those of all files.
        """
        ...

    def of_arrow(self, table: pa.Table) -> Table:
        """Return a table of rows in memory; where Spark joins it, both sides are sorted and merged."""
        ...

    def kept(self, table: Table, *, where: str = "true", in_one_piece: bool = False) -> Table:
        """Compute rows of a table now, for those that read them more than once.

        A small table is cheaper `in_one_piece`: nothing that is made of it alone needs an exchange.
        """
        ...

    def union(self, *tables: Table) -> Table:
        """Return the rows of tables that share one schema."""
        ...

    def union_by_name(self, *tables: Table) -> Table:
        """Return the rows of tables, their columns matched by name: null where a table lacks one."""
        ...

    def analysis(self, name: str, numbers: Mapping[str, int] = {}, /, **tables: Table) -> Table:
        """Return the answer of one of the analyses on the tables, and with the numbers, that it names."""
        ...

    def query(self, text: str, tables: Mapping[str, Table]) -> Table:
        """Return the answer of a query in the engine's own dialect that may name the tables."""
        ...

    def confine(self, directory: Path) -> None:
        """Read no files but those of this export, and of others that were named so, once an analyst's query is to run."""
        ...

    def before_foreign_query(self) -> None:
        """Put into force what `confine` said: the next query is not ours."""
        ...

    def relation(self, table: Table) -> Any:
        """Return a table as the engine's own: a DuckDB relation or a Spark DataFrame."""
        ...

    def apart(self) -> "Engine[Table]":
        """Return an engine whose names of tables are its own; it may share the machinery below."""
        ...

    def arrow(self, table: Table) -> pa.Table:
        """Compute a table."""
        ...

    def answer(self, relation: Any) -> pa.Table:
        """Compute what `relation` returned; what an analyst's query gets wrong is refused.

        Raises:
            InvalidRequest: the query fails on these rows, as where a text is cast to a number and is none.
        """
        ...


_MACROS: Final = """
    CREATE MACRO array_except(list, other) AS list_filter(list, lambda x: NOT list_contains(other, x));
    CREATE MACRO array_join(list, separator) AS array_to_string(list, separator);
    CREATE MACRO conv(digits, from_base, to_base) AS CAST('0x' || digits AS BIGINT);
    CREATE MACRO explode(list) AS unnest(list);
    CREATE MACRO get_json_object(text, path) AS json_extract_string(text, path);
    CREATE MACRO sha2(text, bits) AS sha256(text);
    CREATE MACRO unbase64(text) AS from_base64(text);
    CREATE MACRO unix_millis(t) AS epoch_ms(t);
    CREATE MACRO size(list) AS len(list);
"""


_GONE: Final = re.compile(
    r'No files found that match the pattern "(.+)"|Cannot open file "(.+?)": No such file'
)
"""What DuckDB says of a file that is gone."""
_NAMED: Final = re.compile(r"\bt\d+\b")
"""How tables and views are named here."""
_ABOUT: Final = re.compile(r"^\s*(DESCRIBE|DESC|SUMMARIZE|SHOW)\b", re.IGNORECASE)
_WITH: Final = re.compile(r"^\s*WITH(\s+RECURSIVE)?\b", re.IGNORECASE)


_NO_TABLE: Final = re.compile(
    r"Table with name \"?(\w+)\"? does not exist|\[TABLE_OR_VIEW_NOT_FOUND\][^`]*`(?:\w+`\.`)*(\w+)`"
)
"""What the engines say of a table that they do not know: DuckDB, Spark."""


def connecting() -> "Future[DuckDBPyConnection]":
    """Begin to make a database, in a thread: DuckDB takes a twentieth of a second, in which Python can do something else."""

    def connect() -> None:
        with Failing(connection):
            connection.set_result(_connected())

    connection: Future[DuckDBPyConnection] = Future()
    Thread(target=connect, name="connects").start()  # no daemon: the process's end waits for DuckDB
    return connection


def _connected() -> "DuckDBPyConnection":
    connection = duckdb.connect(config={"autoinstall_known_extensions": False})
    connection.execute("SET GLOBAL TimeZone = 'UTC'")
    connection.execute(_MACROS)
    return connection


class DuckDb:
    """DuckDB in this process; a table is the name of a view, or of a table that was computed.

    With `is_quick`, files are read, and each analysis is computed, from when they are asked for: DuckDB plans a view again
    in each query that contains it, which takes longer than reading the rows of a small log. What fails is raised where its
    rows or its columns are wanted.
    """

    name = "duckdb"
    keeps_shared = False

    def __init__(
        self,
        *,
        threads: int = 2,
        is_quick: bool = False,
        connection: "Future[DuckDBPyConnection] | None" = None,
    ) -> None:
        """Take a connection that `connecting` returned, or make one."""
        self._threads = threads
        self._is_quick = is_quick
        self._connection = _connected() if connection is None else connection.result()
        self._connection.execute(f"SET threads = {1 if is_quick else threads}")
        self._creations = Creations(self._connection) if is_quick else None
        self._named = 0
        self._files: set[str] = set()
        """What was named by us; an analyst's query may name other files."""
        self._same: dict[str, str] = {}
        """What a quick engine has for each query: it computes none twice."""
        self._computed: set[str] = set()
        """The tables among what it has; all else are views."""
        self._empty: dict[pa.Schema, str] = {}
        """A table without rows for each schema that files were read with."""
        self._directories: set[Path] = set()
        self._is_confined = False

    def confine(self, directory: Path) -> None:
        if not self._is_confined:
            self._directories.add(directory.absolute())

    def before_foreign_query(self) -> None:
        if self._is_confined or not self._directories:
            return
        if self._creations is not None:
            self._creations.wait_for_all()
        allowed = ", ".join(_quoted(directory) for directory in sorted(self._directories))
        for setting in (f"allowed_directories = [{allowed}]", "enable_external_access = false"):
            self._connection.execute(f"SET {setting}")
        self._connection.execute("SET lock_configuration = true")
        self._is_confined = True

    def _may_read(self, file: Path) -> bool:
        return not self._is_confined or not self._directories.isdisjoint(file.absolute().parents)

    def parquet(self, files: Sequence[Path], *, schema: pa.Schema | None = None, where: str = "true") -> str:
        found = self._created("TABLE" if self._is_quick else "VIEW", self._rows_of(files, schema))
        return found if where == "true" else self._view(f"SELECT * FROM {found} WHERE {where}")  # noqa: S608 our own names

    def _rows_of(self, files: Sequence[Path], schema: pa.Schema | None) -> str:
        """Return the query of what files hold."""
        self._files |= set(map(str, files))
        if all(map(self._may_read, files)):
            paths = ", ".join(map(_quoted, files))
            found = f"read_parquet([{paths}], hive_partitioning = false, union_by_name = true)"
        else:
            # The log was opened with an engine that has run foreign queries: what these may read is fixed.
            tables = [pq.ParquetFile(file).read() for file in files]
            found = self.of_arrow(pa.concat_tables(tables, promote_options="default"))
        if schema is None or (self._is_quick and all(_has_schema(file, schema) for file in files)):
            return f"FROM {found}"
        if schema not in self._empty:
            self._empty[schema] = self.of_arrow(schema.empty_table())
        empty = self._empty[schema]
        columns = ", ".join(f'"{name}"' for name in schema.names)
        return f"SELECT {columns} FROM (FROM {empty} UNION ALL BY NAME FROM {found})"  # noqa: S608 paths are quoted

    def of_arrow(self, table: pa.Table) -> str:
        name = self._next_name()
        self._connection.register(name, table)
        if self._creations is not None:
            self._creations.give(name, table)
            self._computed.add(name)
        return name

    def kept(self, table: str, *, where: str = "true", in_one_piece: bool = False) -> str:  # noqa: ARG002
        if table in self._computed and where == "true":
            return table
        return self._created("TABLE", f"SELECT * FROM {table} WHERE {where}")  # noqa: S608 our own names

    def union(self, *tables: str) -> str:
        return (
            tables[0]
            if len(tables) == 1
            else self._view(" UNION ALL ".join(f"FROM {table}" for table in tables))
        )

    def union_by_name(self, *tables: str) -> str:
        return self._view(" UNION ALL BY NAME ".join(f"FROM {table}" for table in tables))

    def analysis(self, name: str, numbers: Mapping[str, int] = {}, /, **tables: str) -> str:
        return self._created(
            "TABLE" if self._is_quick else "VIEW", duckdb_text(name).format(**numbers, **tables)
        )

    def query(self, text: str, tables: Mapping[str, str]) -> str:
        # Not as views of these names: a view keeps the name of what it reads, and another query may name something else so.
        named = ", ".join(f"{name} AS (FROM {table})" for name, table in tables.items())
        with _refusing():
            kinds = [statement.type for statement in self._connection.extract_statements(text)]
        if len(kinds) != 1:
            raise InvalidRequest(f"the query cannot be run: it has {len(kinds)} statements: write one SELECT")
        if kinds[0] != duckdb.StatementType.SELECT:
            raise InvalidRequest(
                f"the query cannot be run: it is a statement of {kinds[0].name}: write a SELECT"
            )
        if _ABOUT.match(text):  # a view is no SELECT of its own
            text = f"SELECT * FROM ({text})"  # noqa: S608 one statement, parsed above
        if named:
            text, is_with = _WITH.subn(lambda found: f"{found[0]} {named}, ", text, count=1)
            text = text if is_with else f"WITH {named} {text}"
        with _refusing(), self._naming_gone_files():
            view = self._view(text)
            self._wait_for(view)
        return view

    def relation(self, table: str) -> "DuckDBPyRelation":
        # What is computed when the rows are read may fail already here, where it is constant.
        with _refusing(), self._naming_gone_files():
            self._wait_for(table)
            return self._connection.sql(f"FROM {table}")

    def apart(self) -> "DuckDb":
        another = DuckDb(threads=self._threads, is_quick=self._is_quick)
        for directory in self._directories:
            another.confine(directory)
        return another

    def arrow(self, table: str) -> pa.Table:
        with self._naming_gone_files():
            self._wait_for(table)
            computed = self._connection.sql(f"FROM {table}").to_arrow_table()
        # DuckDB names the zone of the machine, as which every time is the same moment.
        zoned = [
            field.with_type(pa.timestamp("us", tz="UTC")) if pa.types.is_timestamp(field.type) else field
            for field in computed.schema
        ]
        return computed.cast(pa.schema(zoned))

    def answer(self, relation: Any) -> pa.Table:
        with _refusing(), self._naming_gone_files():
            computed: pa.Table = relation.to_arrow_table()
        return computed

    @contextmanager
    def _naming_gone_files(self) -> Iterator[None]:
        """Name a file of the export that is gone."""
        try:
            yield
        except duckdb.IOException as error:
            gone = next(
                (path for found in _GONE.findall(str(error)) for path in found if path in self._files), None
            )
            if gone is None:
                raise
            raise moved_on(gone) from error

    def _view(self, query: str) -> str:
        return self._created("VIEW", query)

    def _created(self, what: Literal["VIEW", "TABLE"], query: str) -> str:
        """Create what a query tells, or return the name of what was created by the same query."""
        if self._creations is not None and query in self._same:
            return self._same[query]
        name = self._next_name()
        create = f"CREATE {what} {name} AS {query}"
        if self._creations is None:
            with self._naming_gone_files():
                self._connection.execute(create)
            return name
        self._creations.add(name, lambda connection: connection.execute(create), reads=_NAMED.findall(query))
        self._same[query] = name
        if what == "TABLE":
            self._computed.add(name)
        return name

    def _next_name(self) -> str:
        self._named += 1
        return f"t{self._named}"

    def _wait_for(self, name: str) -> None:
        if self._creations is not None:
            self._creations.wait(name)


def _has_schema(file: Path, schema: pa.Schema) -> bool:
    """Answer whether a file has these columns, in this order, and no others.

    Raises:
        ExportMovedOn: it is gone.
    """
    try:
        return bool(pq.read_schema(file).equals(schema))
    except FileNotFoundError as error:
        raise moved_on(file) from error


def _quoted(path: Path) -> str:
    return "'" + str(path).replace("'", "''") + "'"


@contextmanager
def _refusing() -> Iterator[None]:
    """Refuse a query with what DuckDB has against it; a mistake of DuckDB's own stays what it is."""
    try:
        yield
    except (duckdb.InternalException, duckdb.FatalException):
        raise
    except duckdb.Error as error:
        raise refused_query(error) from error


class Spark:
    """Spark, in a session of the caller's."""

    name = "spark"
    keeps_shared = True
    """Spark plans and compiles a query again in each query that contains it, which takes longer than reading its rows."""

    def __init__(self, session: "SparkSession") -> None:
        self._session = session

    def parquet(
        self, files: Sequence[Path], *, schema: pa.Schema | None = None, where: str = "true"
    ) -> "DataFrame":
        from pyspark.sql.pandas.types import from_arrow_schema

        reader = self._session.read
        reader = (
            reader.option("mergeSchema", "true")
            if schema is None
            else reader.schema(from_arrow_schema(schema))
        )
        from pyspark.errors import AnalysisException

        try:
            return reader.parquet(*(str(path) for path in files)).where(where)
        except AnalysisException as error:
            gone = next((path for path in files if not path.exists()), None)
            if gone is None:
                raise
            raise moved_on(gone) from error

    def of_arrow(self, table: pa.Table) -> "DataFrame":
        # It has a row for each batch: Spark would send it to all tasks whole.
        return self._session.createDataFrame(table).hint("merge")

    def kept(self, table: "DataFrame", *, where: str = "true", in_one_piece: bool = False) -> "DataFrame":
        chosen = table.where(where)
        return (chosen.coalesce(1) if in_one_piece else chosen).localCheckpoint()

    def union(self, *tables: "DataFrame") -> "DataFrame":
        # In one query: a DataFrame for each union would analyse again all that came before.
        named = {f"table_{number}": table for number, table in enumerate(tables)}
        return self._session.sql(" UNION ALL ".join(f"FROM {{{name}}}" for name in named), **named)

    def union_by_name(self, *tables: "DataFrame") -> "DataFrame":
        return reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), tables)

    def analysis(self, name: str, numbers: Mapping[str, int] = {}, /, **tables: "DataFrame") -> "DataFrame":
        steps = spark_steps(name)
        for part, query in steps.kept:
            tables[part] = self.kept(self._session.sql(query, **numbers, **tables))
        return self._session.sql(steps.query, **numbers, **tables)

    def query(self, text: str, tables: Mapping[str, "DataFrame"]) -> "DataFrame":
        from pyspark.errors import AnalysisException, ParseException

        for name, table in tables.items():
            table.createOrReplaceTempView(name)
        try:
            return self._session.sql(text)
        except (AnalysisException, ParseException) as error:
            raise refused_query(error) from error

    def confine(self, directory: Path) -> None:
        """Do nothing: a session is its owner's. One of ours reads no file that a query names (`session`)."""

    def before_foreign_query(self) -> None:
        """Do nothing, as `confine`."""

    def relation(self, table: "DataFrame") -> "DataFrame":
        return table

    def apart(self) -> "Spark":
        return Spark(self._session.newSession())

    def arrow(self, table: "DataFrame") -> pa.Table:
        return table.toArrow()

    def answer(self, relation: "DataFrame") -> pa.Table:
        from pyspark import errors

        try:
            return relation.toArrow()
        except (
            errors.AnalysisException,
            errors.ArithmeticException,
            errors.ArrayIndexOutOfBoundsException,
            errors.DateTimeException,
            errors.IllegalArgumentException,
            errors.NumberFormatException,
            errors.SparkRuntimeException,
        ) as error:
            raise refused_query(error) from error


def refused_query(error: Exception) -> InvalidRequest:
    """Return what an engine has against a query, in one line, its hints included.

    The line of the query that it quotes is left out: it is not the line that was written.
    """
    lines = takewhile(
        lambda line: line and not line.startswith("LINE "), map(str.strip, str(error).strip().splitlines())
    )
    text = " ".join(lines)
    unknown = _NO_TABLE.search(text)
    if unknown is not None:
        name = unknown[1] or unknown[2]
        # The engine knows only the tables that a query names rightly.
        near = difflib.get_close_matches(name.lower(), TABLES, n=1, cutoff=0.6)
        hint = f"did you mean {near[0]}?" if near else "SHOW TABLES lists those that can be asked"
        text = f"there is no table {name}: {hint}"
    return InvalidRequest(f"the query cannot be run: {text}")


def engine_of(of: "SparkSession | DuckDb") -> "Spark | DuckDb":
    """Return the engine of a Spark session; a DuckDb is an engine itself."""
    return of if isinstance(of, DuckDb) else Spark(of)


def rows(table: pa.Table) -> list[tuple[Any, ...]]:
    """Return a table's rows as plain tuples."""
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))
