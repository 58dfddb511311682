"""Edge: `python -m tests.kafka_vectors JARS`: records of every type and version, written by Kafka's own classes.

JARS is a folder with the jars of Kafka 4.3.1 and of what they need; `java` is a JDK of 17 or newer. The records are random,
with fields at their defaults, null, empty, and at the ends of their ranges; the same seed makes the same file.
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

from tests.kafka_schemas import CONTROL_NUMBERS, kept, parsed

VECTORS: Final = Path(__file__).resolve().parents[1] / "golden" / "kafka" / "record_vectors.jsonl.gz"
PROGRAM: Final = Path(__file__).with_name("Vectors.java")
EACH: Final = 12
"""Records of each type and version."""
_BITS: Final[Mapping[str, int]] = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
_TEXTS: Final = ("", "t", "orders", "größe-数", "x" * 126, "x" * 127, "y" * 300)


def records(rng: random.Random) -> Iterator[dict[str, Any]]:
    for name, schema in sorted(parsed(kept()).items()):
        number, _ = CONTROL_NUMBERS.get(name, (schema.get("apiKey"), ""))
        first, _, last = schema["validVersions"].partition("-")
        structs = {struct["name"]: struct["fields"] for struct in schema.get("commonStructs", ())}
        for version in range(int(first), int(last or first) + 1):
            for _ in range(EACH):
                fields = _fields(rng, schema["fields"], structs, version)
                if name in CONTROL_NUMBERS:
                    fields["version"] = version
                yield {
                    "number": number,
                    "is_control": name in CONTROL_NUMBERS,
                    "version": version,
                    "fields": fields,
                }


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
        case "bytes":
            return base64.b64encode(rng.randbytes(rng.choice([0, 1, 20, 200]))).decode()
        case "string":
            return rng.choice(_TEXTS)
        case _:
            made = _fields(rng, field.get("fields") or structs[kind], structs, version)
            if "name" in made:  # an entry of a map in Kafka, which has each name once
                made["name"] = f"{rng.random():.9f}"
            return made


def main(jars: Path) -> None:
    lines = "\n".join(json.dumps(record, ensure_ascii=False) for record in records(random.Random(31)))
    command = ["java", "-cp", f"{jars}/*", str(PROGRAM)]
    found = subprocess.run(command, input=lines.encode(), stdout=subprocess.PIPE, check=True).stdout
    VECTORS.write_bytes(gzip.compress(found, mtime=0))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
