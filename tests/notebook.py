"""Edge: `python -m tests.notebook`: runs docs/notebook.py on a synthetic log; docs/notebook.ipynb has the answers."""

import ast
import contextlib
import io
import json
import logging
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from metadata_log.replay.source import export_directory
from ops.bench import big_log

SOURCE: Final = Path(__file__).resolve().parents[1] / "docs" / "notebook.py"
RENDERED: Final = SOURCE.with_suffix(".ipynb")
RECORDS: Final = 8_000
_CODE, _MARKDOWN = "# %%\n", "# %% [markdown]\n"


def rendered(scratch: Path) -> str:
    """Return the notebook with what its cells answer, run on a log that is the same each time."""
    big_log.write_log(scratch / "log", RECORDS, partitions=300)
    export_directory(scratch / "log", scratch / "export")
    return run_on(scratch / "export")


def run_on(log: Path) -> str:
    """Return the notebook with what its cells answer about a log."""
    logging.disable()  # what the library says beside its answers is in the answers' notes, too
    before = os.environ.get("METAQUORUM_LOG")
    os.environ["METAQUORUM_LOG"] = str(log)
    try:
        cells = list(_run(list(_cells(SOURCE.read_text()))))
    finally:
        logging.disable(logging.NOTSET)
        os.environ.pop("METAQUORUM_LOG")
        if before is not None:
            os.environ["METAQUORUM_LOG"] = before
    about = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    notebook = {"cells": cells, "metadata": about, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"


def _cells(text: str) -> Iterator[tuple[str, str]]:
    """Yield kind and text of each cell of a file in the percent format."""
    for part in text.split("\n# %%"):
        whole = part if part.startswith("# %%") else f"# %%{part}"
        if whole.startswith(_MARKDOWN):
            lines = whole.removeprefix(_MARKDOWN).strip().splitlines()
            yield "markdown", "\n".join(line.removeprefix("#").removeprefix(" ") for line in lines)
        else:
            yield "code", whole.removeprefix(_CODE).strip()


def _run(cells: list[tuple[str, str]]) -> Iterator[dict[str, Any]]:
    names: dict[str, Any] = {}
    count = 0
    for place, (kind, text) in enumerate(cells):
        cell: dict[str, Any] = {"cell_type": kind, "id": f"cell-{place}", "metadata": {}}
        if kind == "code":
            count += 1
            cell |= {"execution_count": count, "outputs": _outputs(text, names, count)}
        yield cell | {"source": text.splitlines(keepends=True)}


def _outputs(text: str, names: dict[str, Any], count: int) -> list[dict[str, Any]]:
    """Run a cell as a notebook does: its last line is its answer, where that is an expression."""
    tree = ast.parse(text)
    last = None
    if isinstance(answering := tree.body[-1], ast.Expr):
        tree.body.pop()
        last = ast.Expression(answering.value)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, str(SOURCE), "exec"), names)
        value = None if last is None else eval(compile(last, str(SOURCE), "eval"), names)
    outputs: list[dict[str, Any]] = []
    if printed.getvalue():
        outputs.append({"name": "stdout", "output_type": "stream", "text": printed.getvalue()})
    if value is not None:
        data = {"text/plain": repr(value)}
        if hasattr(value, "_repr_markdown_"):
            data = {"text/markdown": value._repr_markdown_(), "text/plain": str(value)}
        answer = {"data": data, "execution_count": count, "metadata": {}, "output_type": "execute_result"}
        outputs.append(answer)
    return outputs


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="metaquorum-notebook-") as folder:
        RENDERED.write_text(rendered(Path(folder)))
