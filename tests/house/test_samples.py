"""The sample brokers of docs/samples: what they know, what they pin, and that they stay short enough to begin with."""

import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Final

import pytest

from broker_agent.session import SUPPORTED_FEATURES
from metadata_log.records.declaration import declaration_of
from metadata_log.records.registry import TYPE_IDS
from tests.support.samples import GO, JAVA, SAMPLES

SOURCES: Final = (*sorted(GO.glob("*.go")), *sorted(JAVA.glob("*.java")))
LINES_MAX: Final = 100
"""A file of a sample is read from its beginning to its end."""
KNOWN: Final = {
    "go": (GO / "log.go", r"known = \[\]int\{([^}]*)\}", r"newest = map\[int\]int\{([^}]*)\}"),
    "java": (JAVA / "Log.java", r"KNOWN = Set\.of\(([^)]*)\)", r"NEWEST = Map\.of\(([^)]*)\)"),
}


@pytest.mark.parametrize("language", KNOWN)
def test_a_sample_knows_the_records_of_the_level_that_it_registers(language: str) -> None:
    """Goal: a level that a sample says it supports brings no record that ends it."""
    source, types, versions = KNOWN[language]
    said = source.read_text()
    assert set(_numbers(types, said)) == set(TYPE_IDS.values())
    pairs = _numbers(versions, said)
    newest = {TYPE_IDS[of]: len(declaration_of(of).versions) - 1 for of in TYPE_IDS}
    assert dict(zip(pairs[::2], pairs[1::2], strict=True)) == {
        of: last for of, last in newest.items() if last
    }


def _numbers(pattern: str, said: str) -> list[int]:
    found = re.search(pattern, said)
    assert found is not None, pattern
    return [int(number) for number in re.findall(r"\d+", found[1])]


@pytest.mark.parametrize("broker", [GO / "broker.go", JAVA / "Broker.java"], ids=lambda file: file.suffix[1:])
def test_a_sample_registers_the_newest_levels(broker: Path) -> None:
    said = broker.read_text()
    for feature in SUPPORTED_FEATURES:
        assert re.search(rf'"{feature.name}", \d+, {feature.max_version}\b', said), feature.name


@pytest.mark.parametrize("source", SOURCES, ids=lambda file: file.name)
def test_a_sample_is_short_and_the_page_shows_it(source: Path) -> None:
    assert len(source.read_text().splitlines()) <= LINES_MAX
    page = (SAMPLES.parent / "broker-protocol.md").read_text()
    assert f"](samples/{source.relative_to(SAMPLES).as_posix()})" in page


def test_the_jars_of_the_sample_in_java_are_pinned() -> None:
    lines = (JAVA / "SHA256SUMS").read_text().splitlines()
    sums = {name: pinned for pinned, name in map(str.split, lines)}
    pom = ET.parse(JAVA / "pom.xml")
    at = "{http://maven.apache.org/POM/4.0.0}"
    asked = [
        f"{dependency.findtext(f'{at}artifactId')}-{dependency.findtext(f'{at}version')}.jar"
        for dependency in pom.iter(f"{at}dependency")
    ]
    assert asked and set(asked) < set(sums), "without what the libraries need themselves"
    assert all(re.fullmatch(r"[0-9a-f]{64}", each) for each in sums.values())
