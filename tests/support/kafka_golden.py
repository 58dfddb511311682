"""Scripts of controller operations, each line with the answer of Kafka 4.3.1."""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import tests.golden

KAFKA: Final = Path(tests.golden.__path__[0]) / "kafka"
CASES: Final = sorted(path.name.removesuffix(".expected.jsonl") for path in KAFKA.glob("*.expected.jsonl"))
Lines = list[tuple[dict[str, Any], dict[str, Any]]]


def _lines(path: Path) -> list[dict[str, Any]]:
    text = gzip.decompress(path.read_bytes()).decode() if path.suffix == ".gz" else path.read_text()
    return [json.loads(line) for line in text.splitlines()]


def scripts(name: str, suffix: str = ".jsonl") -> Iterator[Lines]:
    """Yield the scripts of a file, each line with its answer."""
    script: Lines = []
    for line, answer in zip(
        _lines(KAFKA / f"{name}{suffix}"), _lines(KAFKA / f"{name}.expected{suffix}"), strict=True
    ):
        if line["op"] == "Reset":
            yield script
            script = []
        else:
            script.append((line, answer))
    yield script
