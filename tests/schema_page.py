"""Edge: `python -m tests.schema_page`: writes the tables and columns into docs/analytics.md, from what the code says."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from metadata_log.replay.catalog import ANALYSES, FAMILIES, STATE, described

PAGE: Final = Path(__file__).resolve().parents[1] / "docs" / "analytics.md"
MARK: Final = "<!-- what follows is written by `python -m tests.schema_page` -->"


def tables() -> Iterator[str]:
    for title, names in (
        ("Files of the export", FAMILIES),
        ("State at the end", STATE),
        ("Analyses", ANALYSES),
    ):
        yield f"\n## {title}\n"
        for name in names:
            table = described(name)
            yield f"\n### {name}\n\n{table.about}\n\n| column | type | meaning |\n| --- | --- | --- |\n"
            for column in table.columns:
                yield f"| {column.name} | {column.type} | {column.meaning} |\n"


def written(page: str) -> str:
    """Return the page with its tables as the code has them now."""
    return page.partition(MARK)[0] + MARK + "\n" + "".join(tables())


def questions(page: str) -> list[tuple[str, str]]:
    """Return the questions of the page with their queries."""
    found = []
    for part in page.partition(MARK)[0].split("\n**")[1:]:
        question, _, rest = part.partition("**")
        found.append((question, rest.split("```sql\n")[1].split("```")[0]))
    return found


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text()))
