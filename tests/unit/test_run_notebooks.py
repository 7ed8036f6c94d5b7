"""The script that executes the lessons: the table that it writes, and that it measures and keeps what it ran."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

nbformat = pytest.importorskip("nbformat", reason="pip install 'agentgym-lite[notebooks]'")
pytest.importorskip("nbclient", reason="pip install 'agentgym-lite[notebooks]'")

SCRIPT = Path(__file__).parents[2] / "scripts" / "run_notebooks.py"
HEADER = "# 07 · Title\n\n| | |\n|---|---|\n| **Time** | about 5 seconds to run |\n| **You will learn** | a thing, and more |"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("run_notebooks", SCRIPT)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def save(folder: Path, code: str, **metadata: Any) -> Path:
    v4 = nbformat.v4
    path = folder / "07_title.ipynb"
    nbformat.write(v4.new_notebook(cells=[v4.new_markdown_cell(HEADER), v4.new_code_cell(code)], metadata=metadata), path)
    return path


def test_the_table_has_a_line_per_lesson(script, tmp_path):
    path = save(tmp_path, "1", agentgym_lite={"seconds": 60.0, "cpu_seconds": 4.6})
    assert script.table([path]).splitlines()[2] == "| [07 · Title](07_title.ipynb) | 5 s | - | a thing, and more |"


def test_the_table_replaces_the_old_one_and_links_are_relative(script, tmp_path):
    (tmp_path / "notebooks").mkdir()
    for file in (tmp_path / "notebooks" / "README.md", tmp_path / "README.md"):
        file.write_text("before\n<!-- lessons -->\nold\n<!-- /lessons -->\nafter\n")
    assert len(script.write_table("[x](07_x.ipynb)", tmp_path)) == 2
    assert (tmp_path / "notebooks" / "README.md").read_text() == "before\n<!-- lessons -->\n[x](07_x.ipynb)\n<!-- /lessons -->\nafter\n"
    assert "\n[x](notebooks/07_x.ipynb)\n" in (tmp_path / "README.md").read_text()
    (tmp_path / "README.md").write_text("no marks")
    assert len(script.write_table("new", tmp_path)) == 1
    assert (tmp_path / "README.md").read_text() == "no marks"


def test_a_notebook_is_executed_measured_and_kept(script, tmp_path):
    path = save(tmp_path, "print(1 + 1)")
    times = script.execute(path)
    kept = nbformat.read(path, as_version=4)
    assert kept["metadata"]["agentgym_lite"] == times
    assert times["cpu_seconds"] > 0
    assert times["seconds"] > 0
    (cell,) = [c for c in kept["cells"] if c["cell_type"] == "code"]
    assert cell["outputs"][0]["text"] == "2\n"
    assert cell["execution_count"] == 1
    assert "execution" not in cell["metadata"]


def test_a_notebook_that_fails_is_left_as_it_was(script, tmp_path):
    path = save(tmp_path, "1 / 0")
    before = path.read_bytes()
    with pytest.raises(script.CellExecutionError):
        script.execute(path)
    assert path.read_bytes() == before
