"""Edge: `python -m tests.kafka_schemas JARS`: writes the table of Kafka's records from the schemas in Kafka's own jars.

JARS is a folder with kafka-clients and kafka-metadata of one release. The schemas of the records are kept beside the other
recordings (`SCHEMAS`), so that a test makes the table again where no jar is.
"""

import io
import json
import re
import sys
import tarfile
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from metadata_log.kafka import record_table

SCHEMAS: Final = Path(__file__).resolve().parent / "golden" / "kafka" / "record_schemas.tar.xz"
"""The files of the jars that the table is made from, as published."""
TABLE: Final = Path(record_table.__file__)
RELEASE: Final = "4.3.1"
CONTROL_NUMBERS: Final[Mapping[str, tuple[int, str]]] = {
    "LeaderChangeMessage": (2, "LeaderChange"),
    "SnapshotHeaderRecord": (3, "SnapshotHeader"),
    "SnapshotFooterRecord": (4, "SnapshotFooter"),
    "KRaftVersionRecord": (5, "KRaftVersion"),
    "VotersRecord": (6, "KRaftVoters"),
}
"""The schemas of control records name no number: it is in Kafka's ControlRecordType, and so is the name."""
_COMMENT: Final = re.compile(r"^\s*//.*$", re.MULTILINE)
_WORD: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def in_jars(folder: Path) -> dict[str, bytes]:
    """Return the schema files of the records, by name."""
    found = {}
    for jar in (f"kafka-clients-{RELEASE}.jar", f"kafka-metadata-{RELEASE}.jar"):
        with zipfile.ZipFile(folder / jar) as archive:
            for path in archive.namelist():
                name = path.rpartition("/")[2].removesuffix(".json")
                if path.endswith(".json") and (
                    path.startswith("common/metadata/") or name in CONTROL_NUMBERS
                ):
                    found[name] = archive.read(path)
    return found


def kept() -> dict[str, bytes]:
    """Return the schema files that the repository keeps, by name."""
    with tarfile.open(SCHEMAS) as archive:
        files = [(member.name, archive.extractfile(member)) for member in archive.getmembers()]
        return {name: file.read() for name, file in files if file is not None}


def keep(files: Mapping[str, bytes]) -> None:
    with tarfile.open(SCHEMAS, "w:xz") as archive:
        for name in sorted(files):
            member = tarfile.TarInfo(name)
            member.size = len(files[name])
            archive.addfile(member, io.BytesIO(files[name]))


def parsed(files: Mapping[str, bytes]) -> dict[str, dict[str, Any]]:
    """Return what the schema files say, by their names."""
    return {name: json.loads(_COMMENT.sub("", text.decode())) for name, text in files.items()}


def table(files: Mapping[str, bytes]) -> str:
    """Return the module with the table that these schemas make."""
    schemas = parsed(files).values()
    data = sorted((int(schema["apiKey"]), schema) for schema in schemas if schema["type"] == "metadata")
    control = sorted(
        (CONTROL_NUMBERS[schema["name"]], schema) for schema in schemas if schema["type"] == "data"
    )
    records = [(number, schema["name"].removesuffix("Record"), schema) for number, schema in data]
    lines = [
        f'"""Pure: the schemas of the records of Apache Kafka {RELEASE}; `python -m tests.kafka_schemas` writes it.',
        "",
        "`schemas.py` says what a line means.",
        '"""',
        "",
        "from typing import Final",
        "",
        'RECORDS: Final = """',
        *(line for each in records for line in _record(*each)),
        '"""',
        "",
        'CONTROL: Final = """',
        *(line for (number, name), schema in control for line in _record(number, name, schema)),
        '"""',
        '"""The records of control batches, which the quorum itself writes."""',
    ]
    return "\n".join(lines) + "\n"


def _record(number: int, name: str, schema: Mapping[str, Any]) -> Iterator[str]:
    yield f"{number} {name} {schema['validVersions']} flexible {schema['flexibleVersions']}"
    structs = {struct["name"]: struct["fields"] for struct in schema.get("commonStructs", ())}
    yield from _fields(schema["fields"], structs, "    ")


def _fields(
    fields: list[Mapping[str, Any]], structs: Mapping[str, list[Mapping[str, Any]]], indent: str
) -> Iterator[str]:
    for field in fields:
        words = [_snake(field["name"]), field["type"].replace(" ", ""), field["versions"]]
        for key, word in (("nullableVersions", "nullable"), ("taggedVersions", "tagged")):
            words += [word, field[key]] if key in field else []
        words += ["tag", str(field["tag"])] if "tag" in field else []
        words += ["default", field["default"]] if "default" in field else []
        words += ["ignorable", "yes"] if field.get("ignorable") in (True, "true") else []
        yield indent + " ".join(words)
        inner = field.get("fields") or structs.get(field["type"].removeprefix("[]"), [])
        yield from _fields(inner, structs, indent + "    ")


def _snake(name: str) -> str:
    return _WORD.sub("_", name.replace("KRaft", "Kraft")).lower()


if __name__ == "__main__":
    found = in_jars(Path(sys.argv[1]))
    keep(found)
    TABLE.write_text(table(found), encoding="utf-8")
