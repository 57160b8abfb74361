"""The notebooks run, and store what comes out."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from tests.support.notebook_cells import code_cells, read, run, texts_of
from tests.support.package_paths import find_paths

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = find_paths(ROOT, "examples/*.ipynb")


def test_all_notebooks_are_run_here():
    assert [path.stem for path in NOTEBOOKS] == ["flights_weather", "sensors"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_one_that_was_run_from_top_to_bottom(path):
    nbformat.validate(nbformat.read(path, as_version=4))
    counts = [cell["execution_count"] for cell in code_cells(read(path))]
    assert counts == list(range(1, len(counts) + 1))


def test_a_kernel_comes_to_what_is_stored(monkeypatch):
    """As Jupyter runs it, in the notebook's own folder, with what this process has on its path."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"), prepend=":")
    path = ROOT / "examples" / "sensors.ipynb"
    notebook = nbformat.read(path, as_version=4)
    folder = {"metadata": {"path": str(path.parent)}}
    NotebookClient(notebook, timeout=120, kernel_name="python3", resources=folder).execute()
    assert [texts_of(cell) for cell in code_cells(notebook)] == [texts_of(c) for c in code_cells(read(path))]


@pytest.mark.spark
def test_spark_s_comes_to_what_is_stored(spark, monkeypatch):
    """In the session of the tests: a JVM of its own would take as long as all that it does."""
    monkeypatch.chdir(ROOT)
    notebook = read(ROOT / "examples" / "flights_weather.ipynb")
    assert list(run(notebook)) == [texts_of(cell) for cell in code_cells(notebook)]
