"""Edge: the exports of several clusters side by side, asked together: `LAKE/cluster=ID/`, each an export of its own."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal, overload

from metadata_log.errors import InvalidRequest
from metadata_log.replay.engines import DuckDb, Made
from metadata_log.replay.library import Log, Tables, engine_named, warn_of_unknown
from metadata_log.replay.named_tables import Relation
from metadata_log.replay.tables import SMALL_ROWS, clusters_in, open_export

if TYPE_CHECKING:
    from duckdb import DuckDBPyRelation
    from pyspark.sql import DataFrame, SparkSession


@overload
def open_lake(
    path: str | Path, engine: "Literal['duckdb'] | DuckDb" = "duckdb"
) -> "Lake[DuckDBPyRelation]": ...
@overload
def open_lake(path: str | Path, engine: "Literal['spark'] | SparkSession") -> "Lake[DataFrame]": ...
@overload
def open_lake(path: str | Path, engine: str) -> "Lake[DuckDBPyRelation] | Lake[DataFrame]": ...
def open_lake(
    path: str | Path, engine: "str | SparkSession | DuckDb" = "duckdb"
) -> "Lake[DuckDBPyRelation] | Lake[DataFrame]":
    """Open a folder of exports as `log export --lake` writes it; `engine` as in `open_log`.

    Raises:
        InvalidRequest: there is none.
        DamagedFile: a file of an export is not what was written.
    """
    found = clusters_in(Path(path))
    if not found:
        raise InvalidRequest(f"{path} is no lake: write one with `metaquorum log export --lake --to {path}`")
    exports = {cluster_id: open_export(directory) for cluster_id, directory in found.items()}
    row_count = sum(export.row_count for export in exports.values())
    asked = engine_named(engine, is_quick=row_count <= SMALL_ROWS)
    for export in exports.values():
        warn_of_unknown(export.directory, export)
    return Lake({cluster_id: Log(asked, export) for cluster_id, export in exports.items()})


class Lake(Tables[Relation]):
    """The logs of several clusters, by cluster id. Tables have the rows of all, and `cluster` as their first column."""

    def __init__(self, logs: Mapping[str, Log[Relation]]) -> None:
        self.logs = logs
        self.engine = next(iter(logs.values())).engine

    def __getitem__(self, cluster_id: str) -> Log[Relation]:
        return self.logs[cluster_id]

    def table_of(self, name: str) -> Made:
        parts = [
            self.engine.query(
                f"SELECT '{log.export.cluster_id}' AS cluster, rows_of_one.* FROM rows_of_one",  # noqa: S608 an id
                {"rows_of_one": log.table_of(name)},
            )
            for log in self.logs.values()
        ]
        return self.engine.union_by_name(*parts)

    def __repr__(self) -> str:
        return (
            f"<lake of {len(self.logs)} cluster{'' if len(self.logs) == 1 else 's'}: {', '.join(self.logs)}>"
        )
