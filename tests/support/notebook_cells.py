"""Notebooks' cells: run in this process, and their outputs as text, those that a notebook stores and those
that came.

Not what a kernel is: no magics, no displays but the last expression of a cell. To store what came: ``python
-m tests.support.notebook_cells examples/sensors.ipynb``, from the repository.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

Notebook = dict[str, Any]


def read(path: Path) -> Notebook:
    notebook: Notebook = json.loads(path.read_text())
    return notebook


def code_cells(notebook: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def texts_of(cell: Mapping[str, Any]) -> tuple[str, str]:
    """What a cell has printed, and its value, as stored."""
    printed = "".join(_join_text(out["text"]) for out in cell["outputs"] if out["output_type"] == "stream")
    values = [out["data"]["text/plain"] for out in cell["outputs"] if out["output_type"] == "execute_result"]
    return printed, "".join(_join_text(value) for value in values)


def run(notebook: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    """Run the cells one after the other: of each what it prints, and its value."""
    names: dict[str, Any] = {"__name__": "__main__"}
    for number, cell in enumerate(code_cells(notebook), 1):
        tree = ast.parse(_join_text(cell["source"]))
        last = None
        if tree.body and isinstance(tree.body[-1], ast.Expr):
            last = compile(ast.Expression(tree.body[-1].value), f"cell {number}", "eval")
            del tree.body[-1]
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(tree, f"cell {number}", "exec"), names)
            value = None if last is None else eval(last, names)
        yield printed.getvalue(), "" if value is None else repr(value)


def _join_text(text: str | list[str]) -> str:
    return text if isinstance(text, str) else "".join(text)


def store(path: Path) -> None:
    notebook = read(path)
    for number, (cell, (printed, value)) in enumerate(
        zip(code_cells(notebook), run(notebook), strict=True), 1
    ):
        outputs: list[dict[str, Any]] = []
        if printed:
            outputs.append({"name": "stdout", "output_type": "stream", "text": printed.splitlines(True)})
        if value:
            data = {"text/plain": value.splitlines(True)}
            result = {
                "data": data,
                "execution_count": number,
                "metadata": {},
                "output_type": "execute_result",
            }
            outputs.append(result)
        cell |= {"outputs": outputs, "execution_count": number}
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    store(Path(sys.argv[1]))
