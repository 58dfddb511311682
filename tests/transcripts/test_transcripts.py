"""Edge: commands and the records written for them, in plain text; METAQUORUM_REWRITE=1 writes the files anew, for review.

Lines with `>` are commands, the others what they led to: records in their order, `[CAUSE]` before those that no client asked
for, `->` what a broker is told, `!` a refusal. Scripts with Kafka's answers (`tests/golden/kafka`) say what is decided.
Here are cases in which causes, states of brokers and offsets of registrations matter, which those do not tell.
"""

import os
from pathlib import Path

import pytest

from tests.support.decisions import World, invariants_hold

TRANSCRIPTS = sorted(Path(__file__).parent.glob("*.txt"))
assert TRANSCRIPTS, "without a file pytest would leave the test out"


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_the_cluster_does_as_the_transcript_says(path: Path) -> None:
    world, lines = World(), []
    written = path.read_text(encoding="utf-8")
    for line in written.splitlines():
        if line.startswith("#"):
            lines.append(line)
        if line.startswith("> "):
            lines += [line, *(f"    {told}" for told in world.run(line[2:]))]
            invariants_hold(world.image)
    happened = "\n".join(lines) + "\n"
    if os.environ.get("METAQUORUM_REWRITE"):
        path.write_text(happened, encoding="utf-8")
    assert happened == path.read_text(encoding="utf-8")
