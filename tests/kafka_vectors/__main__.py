"""Edge: `python -m tests.kafka_vectors JARS`: records and messages of every kind and version, written by Kafka's classes.

JARS is a folder with the jars of Kafka 4.3.1 and of what they need; `java` is a JDK of 17 or newer. They are random, with
fields at their defaults, null, empty, and at the ends of their ranges; the same seed makes the same file.
"""

import base64
import gzip
import json
import random
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from tests.kafka_schemas import CONTROL_NUMBERS, PRINCIPAL, kept, parsed

_GOLDEN: Final = Path(__file__).resolve().parents[1] / "golden" / "kafka"
RECORDS: Final = _GOLDEN / "record_vectors.jsonl.gz"
MESSAGES: Final = _GOLDEN / "message_vectors.jsonl.gz"
PROGRAM: Final = Path(__file__).with_name("Vectors.java")
RECORDS_EACH: Final = 12
"""Of each type and version."""
MESSAGES_EACH: Final = 2
"""Of each key and version."""
_BITS: Final[Mapping[str, int]] = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
_TEXTS: Final = ("", "t", "orders", "größe-数", "x" * 126, "x" * 127, "y" * 300)


def records(rng: random.Random) -> Iterator[dict[str, Any]]:
    """Yield records of every type and version."""
    for name, schema in sorted(parsed(kept()).items()):
        if name in CONTROL_NUMBERS:
            for version, fields in _made(rng, schema, RECORDS_EACH):
                fields["version"] = version
                yield _line("control", CONTROL_NUMBERS[name][0], name, version, fields)
        elif schema["type"] == "metadata":
            for version, fields in _made(rng, schema, RECORDS_EACH):
                yield _line("data", schema["apiKey"], name, version, fields)


def messages(rng: random.Random) -> Iterator[dict[str, Any]]:
    """Yield headers, requests and answers of every key and version."""
    for name, schema in sorted(parsed(kept()).items()):
        if schema["type"] in ("request", "response", "header"):
            for version, fields in _made(rng, schema, MESSAGES_EACH):
                yield _line(schema["type"], schema.get("apiKey", 0), f"{name}Data", version, fields)
        elif name == PRINCIPAL:
            for version, fields in _made(rng, schema, MESSAGES_EACH):
                yield _line("principal", 0, name, version, fields)


def _made(rng: random.Random, schema: Mapping[str, Any], count: int) -> Iterator[tuple[int, dict[str, Any]]]:
    first, _, last = schema["validVersions"].partition("-")
    structs = {struct["name"]: struct["fields"] for struct in schema.get("commonStructs", ())}
    for version in range(int(first), int(last or first) + 1):
        for _ in range(count):
            yield version, _fields(rng, schema["fields"], structs, version)


def _line(kind: str, number: int, of: str, version: int, fields: Mapping[str, Any]) -> dict[str, Any]:
    return {"kind": kind, "number": number, "class": of, "version": version, "fields": fields}


def _fields(
    rng: random.Random, fields: list[Mapping[str, Any]], structs: Mapping[str, Any], version: int
) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for field in fields:
        if not _has(field["versions"], version):
            continue
        if _has(field.get("taggedVersions", ""), version) and rng.random() < 0.4:
            continue
        name = field["name"][0].lower() + field["name"][1:]
        if _has(field.get("nullableVersions", ""), version) and rng.random() < 0.3:
            made[name] = None
        elif field["type"].startswith("[]"):
            count = rng.choice([0, 1, 2, 3, 5, 140 if field["type"] == "[]int32" else 4])
            made[name] = [_value(rng, field, structs, version) for _ in range(count)]
        else:
            made[name] = _value(rng, field, structs, version)
    return made


def _has(versions: str, version: int) -> bool:
    first, _, last = versions.removesuffix("+").partition("-")
    return first not in ("", "none") and int(first) <= version <= int(
        32767 if versions.endswith("+") else last or first
    )


def _value(rng: random.Random, field: Mapping[str, Any], structs: Mapping[str, Any], version: int) -> Any:
    kind = field["type"].removeprefix("[]")
    if kind in _BITS:
        half = 1 << (_BITS[kind] - 1)
        return rng.choice([0, 1, -1, -2, half - 1, -half, rng.randrange(-half, half)])
    match kind:
        case "uint16":
            return rng.choice([0, 9092, 65_535])
        case "bool":
            return rng.random() < 0.5
        case "float64":
            return rng.choice([0.0, -1.5, 1e300, rng.random()])
        case "uuid":
            raw = rng.choice([bytes(16), bytes(15) + b"\1", rng.randbytes(16)])
            return base64.urlsafe_b64encode(raw).decode().rstrip("=")
        case "bytes" | "records":
            return base64.b64encode(rng.randbytes(rng.choice([0, 1, 20, 200]))).decode()
        case "string":
            return rng.choice(_TEXTS)
        case _:
            made = _fields(rng, field.get("fields") or structs[kind], structs, version)
            if "name" in made:  # an entry of a map in Kafka, which has each name once
                made["name"] = f"{rng.random():.9f}"
            return made


def write(made: Iterator[dict[str, Any]], jars: Path, to: Path) -> None:
    lines = "\n".join(json.dumps(each, ensure_ascii=False) for each in made)
    command = ["java", "-cp", f"{jars}/*", str(PROGRAM)]
    found = subprocess.run(command, input=lines.encode(), stdout=subprocess.PIPE, check=True).stdout
    to.write_bytes(gzip.compress(found, mtime=0))


if __name__ == "__main__":
    write(records(random.Random(31)), Path(sys.argv[1]), RECORDS)
    write(messages(random.Random(31)), Path(sys.argv[1]), MESSAGES)
