"""Edge: `python -m tests.kafka_schemas JARS`: writes the tables of Kafka's records and messages from Kafka's own jars.

JARS is a folder with kafka-clients and kafka-metadata of one release. The schemas are kept beside the other recordings
(`SCHEMAS`), so that a test makes the tables again where no jar is.
"""

import io
import json
import re
import sys
import tarfile
import zipfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from metadata_log import kafka

SCHEMAS: Final = Path(__file__).resolve().parent / "golden" / "kafka" / "schemas.tar.xz"
"""The files of the jars that the tables are made from, as published."""
ROOM: Final = Path(kafka.__file__).parent
PRINCIPAL: Final = "DefaultPrincipalData"
"""Whom an envelope is sent for."""
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
    """Return the schema files of the records, and of the messages of a controller's listener, by name."""
    found = {}
    for jar in (f"kafka-clients-{RELEASE}.jar", f"kafka-metadata-{RELEASE}.jar"):
        with zipfile.ZipFile(folder / jar) as archive:
            for path in archive.namelist():
                if path.startswith(("common/metadata/", "common/message/")) and path.endswith(".json"):
                    found[path.rpartition("/")[2].removesuffix(".json")] = archive.read(path)
    schemas = parsed(found)
    keys = {
        schema["apiKey"]
        for schema in schemas.values()
        if schema["type"] == "request" and "controller" in schema.get("listeners", ())
    }
    return {name: found[name] for name, schema in schemas.items() if _is_kept(name, schema, keys)}


def _is_kept(name: str, schema: Mapping[str, Any], keys: Collection[int]) -> bool:
    match schema["type"]:
        case "metadata" | "header":
            return True
        case "request" | "response":
            return schema["apiKey"] in keys
        case _:
            return name in CONTROL_NUMBERS or name == PRINCIPAL


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


def tables(files: Mapping[str, bytes]) -> dict[str, str]:
    """Return the modules with the tables that these schemas make, by their names."""
    schemas = parsed(files)
    of = {
        kind: sorted((int(schema["apiKey"]), schema) for schema in schemas.values() if schema["type"] == kind)
        for kind in ("metadata", "request", "response")
    }
    control = sorted((*number, schemas[name]) for name, number in CONTROL_NUMBERS.items())
    principal = schemas[PRINCIPAL]
    return {
        "record_table": _module(
            "metadata records",
            "test_records.py",
            RECORDS=[
                (number, schema["name"].removesuffix("Record"), schema) for number, schema in of["metadata"]
            ],
            CONTROL=control,
        ),
        "request_table": _module(
            "requests to a controller",
            "test_messages.py",
            HEADER=[(0, "RequestHeader", schemas["RequestHeader"])],
            PRINCIPAL=[(0, principal["name"], principal)],
            REQUESTS=[
                (number, schema["name"].removesuffix("Request"), schema) for number, schema in of["request"]
            ],
        ),
        "answer_table": _module(
            "a controller's answers",
            "test_messages.py",
            HEADER=[(0, "ResponseHeader", schemas["ResponseHeader"])],
            ANSWERS=[
                (number, schema["name"].removesuffix("Response"), schema) for number, schema in of["response"]
            ],
        ),
    }


def _module(what: str, tests: str, **constants: Sequence[tuple[int, str, Mapping[str, Any]]]) -> str:
    lines = [
        f'"""Pure: the schemas of {what}, of Apache Kafka {RELEASE}; `python -m tests.kafka_schemas` writes it.',
        "",
        f"`schemas.py` says what a line means. Tests: tests/unit/metadata_log/kafka/{tests}.",
        '"""',
        "",
        "from typing import Final",
    ]
    for name, schemas in constants.items():
        lines += ["", f'{name}: Final = """', *(line for each in schemas for line in _schema(*each)), '"""']
    return "\n".join(lines) + "\n"


def _schema(number: int, name: str, schema: Mapping[str, Any]) -> Iterator[str]:
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
        words += ["default", _default(field["default"])] if field.get("default", "") != "" else []
        words += ["flexible", "none"] if field.get("flexibleVersions") == "none" else []
        words += ["ignorable", "yes"] if field.get("ignorable") in (True, "true") else []
        yield indent + " ".join(words)
        inner = field.get("fields") or structs.get(field["type"].removeprefix("[]"), [])
        yield from _fields(inner, structs, indent + "    ")


def _default(told: object) -> str:
    """Return a default as a word: schemas have numbers and truths in two forms."""
    return str(told).lower() if isinstance(told, bool) else str(told)


def _snake(name: str) -> str:
    return _WORD.sub("_", name.replace("KRaft", "Kraft")).lower()


if __name__ == "__main__":
    found = in_jars(Path(sys.argv[1]))
    keep(found)
    for module, text in tables(found).items():
        (ROOM / f"{module}.py").write_text(text, encoding="utf-8")
