"""Student copies, what depends on what, grading and the commands, on small notebooks written here."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

nbformat = pytest.importorskip("nbformat", reason="pip install 'agentgym-lite[notebooks]'")
pytest.importorskip("nbclient", reason="pip install 'agentgym-lite[notebooks]'")

from agentgym_lite.cli import main  # noqa: E402
from agentgym_lite.course.cells import CourseError, dependents, exercises, names, needed_for  # noqa: E402
from agentgym_lite.course.grade import grade  # noqa: E402
from agentgym_lite.course.student import stub, student_copy, write_student_copies  # noqa: E402

v4 = nbformat.v4
SOLVED = "def needs(seen, prompt):\n    ### BEGIN SOLUTION\n    return cut(prompt, len(seen)) != seen\n    ### END SOLUTION"
STUB = 'def needs(seen, prompt):\n    # your code here\n    raise NotImplementedError("not yet solved")'
CARD = "### Exercise 1 · A new row\n★★☆ · 5 minutes\n\nTask."


def code(source: str, *tags: str, outputs: bool = True) -> Any:
    cell = v4.new_code_cell(source, metadata={"tags": list(tags)} if tags else {}, execution_count=1)
    cell["outputs"] = [v4.new_output("stream", text="done\n")] if outputs else []
    return cell


def markdown(source: str, *tags: str) -> Any:
    return v4.new_markdown_cell(source, metadata={"tags": list(tags)} if tags else {})


def master(solution: str = SOLVED) -> Any:
    """Imports, a slow cell that the exercise does not need, a helper, an exercise with a check, and a question."""
    return v4.new_notebook(
        cells=[
            markdown("# 99 · Title"),
            code("from agentgym_lite.course import checks\nimport math"),
            code("raise SystemError('the lesson itself is not executed')"),
            code("def cut(x, n):\n    return x[:n]"),
            markdown(CARD, "exercise"),
            code(solution, "solution"),
            code("checks.needs_new_row(needs)", "check"),
            code("again = needs([1], [2])"),
            code("print(again)"),
            code("print(math.pi)"),
            markdown("### Exercise 2 · Why\n★☆☆ · 1 minute\n\nWhy?", "exercise"),
            markdown("Because.", "answer"),
        ],
        metadata={"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}, "agentgym_lite": {"seconds": 3.0}},
    )


def save(notebook: Any, path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(notebook, path)
    return path


# -- reading ---------------------------------------------------------------------------------------------------------------


def test_exercises_of_a_notebook():
    first, second = exercises(master())
    assert (first.number, first.title, first.difficulty, first.minutes) == (1, "A new row", 2, 5)
    assert (first.card, first.solution, first.check, first.function) == (4, 5, "needs_new_row", "needs")
    assert (second.number, second.check, second.solution) == (2, "", None)


@pytest.mark.parametrize(
    ("source", "defined", "used"),
    [
        ("x = y + 1", {"x"}, {"y"}),
        ("import a.b as c\nfrom d import e", {"c", "e"}, set()),
        ("def f(a):\n    b = a + g\n    return b", {"f"}, {"g"}),
        ("class C(Base):\n    def m(self):\n        return helper(self)", {"C"}, {"Base", "helper"}),
        ("print(len([i * k for i in range(3)]))", set(), {"k"}),
        ("%matplotlib inline\nx = 1", {"x"}, set()),
        ("def f(:", set(), set()),
    ],
)
def test_names_of_a_cell(source, defined, used):
    found = names(source)
    assert defined <= found.defined
    assert found.used - found.defined == used


def test_what_depends_on_a_solution():
    assert dependents(master()) == [5, 6, 7, 8]


def test_a_name_that_is_defined_anew_depends_on_nothing():
    notebook = master()
    notebook["cells"].insert(8, code("again = 1"))
    assert dependents(notebook) == [5, 6, 7]


def test_what_a_solution_needs():
    assert needed_for(master(), 5) == [3, 5]
    assert needed_for(master(), 9) == [1, 9]


# -- student copies ----------------------------------------------------------------------------------------------------------


def test_a_student_copy_has_stubs_and_no_answers():
    solved = master()
    copy = student_copy(solved, "99_title.ipynb")
    by_source = {c["source"]: c for c in copy["cells"]}
    assert STUB in by_source
    assert "Because." not in by_source
    assert "SOLUTION" not in str(copy)
    cleared = [c["source"] for c in copy["cells"] if c["cell_type"] == "code" and not c["outputs"]]
    assert cleared == [STUB, "checks.needs_new_row(needs)", "again = needs([1], [2])", "print(again)"]
    assert all(by_source[s]["execution_count"] is None for s in cleared)
    assert copy["metadata"]["agentgym_lite"] == {"master": "99_title.ipynb"}
    assert solved == master() or solved["cells"][5]["source"] == SOLVED  # the master itself is untouched
    nbformat.validate(copy)


def test_a_stub_keeps_what_is_around_the_solution():
    source = "def f(x):\n    y = 2 * x\n    ### BEGIN SOLUTION\n    y += 1\n    ### END SOLUTION\n    return y"
    assert stub(source).splitlines() == [
        "def f(x):",
        "    y = 2 * x",
        "    # your code here",
        '    raise NotImplementedError("not yet solved")',
        "    return y",
    ]


@pytest.mark.parametrize(
    "source",
    [
        "def f():\n    return 1",
        "### BEGIN SOLUTION\nx = 1\n### END SOLUTION",
        "def f():\n    ### BEGIN SOLUTION\n    return 1",
        "def f():\n    ### BEGIN SOLUTION\n    ### BEGIN SOLUTION\n    ### END SOLUTION",
    ],
)
def test_a_solution_without_proper_marks_is_refused(source):
    with pytest.raises(CourseError, match="SOLUTION"):
        stub(source)


def test_copies_never_replace_work_or_masters(tmp_path):
    path = save(master(), tmp_path / "masters" / "99_title.ipynb")
    (copy,) = write_student_copies([path], tmp_path / "out")
    copy.write_text("a learner's work")
    with pytest.raises(CourseError, match=r"found 99_title\.ipynb; give another folder or --force"):
        write_student_copies([path], tmp_path / "out")
    assert copy.read_text() == "a learner's work"
    with pytest.raises(CourseError, match="that of the masters"):
        write_student_copies([path], tmp_path / "masters", overwrite=True)
    write_student_copies([path], tmp_path / "out", overwrite=True)
    assert STUB in [c["source"] for c in nbformat.read(copy, as_version=4)["cells"]]


# -- grading -----------------------------------------------------------------------------------------------------------------


ENDS = {
    "solved": (SOLVED, "passed", "right on all"),
    "stub": (STUB, "unsolved", "not yet solved"),
    "wrong": ("def needs(seen, prompt):\n    return prompt != seen", "wrong", "every prompt that grows opens a new row"),
    "broken": ("def needs(seen, prompt)\n    return 1", "error", "SyntaxError"),
    "fails": ("def needs(seen, prompt):\n    return missing", "error", "NameError"),
    "gone": ("x = 1", "unsolved", "has no function gone()"),
}


def test_every_end_of_a_solution_has_its_mark(tmp_path):
    """The lesson itself raises and the checks of the copy were edited: only what a function needs runs, and the master's checks count."""
    solved, cells = master(), []
    for k, name in enumerate(ENDS, 1):
        text = CARD.replace("1 · A new row", f"{k} · {name}")
        cells += [markdown(text, "exercise"), code(SOLVED.replace("needs(", f"{name}("), "solution")]
        cells += [code(f"checks.needs_new_row({name})", "check")]
    solved["cells"][4:] = cells
    save(solved, tmp_path / "masters" / "99_title.ipynb")
    copy = student_copy(solved, "99_title.ipynb")
    for k, (name, (source, _, _)) in enumerate(ENDS.items()):
        copy["cells"][5 + 3 * k]["source"] = source.replace("needs(", f"{name}(")
        copy["cells"][6 + 3 * k]["source"] = "checks.needs_new_row(checks.needs_new_row.right)"
    found = grade(save(copy, tmp_path / "copy.ipynb"), masters=tmp_path / "masters")
    assert [(m.title, m.status) for m in found.marks] == [(name, status) for name, (_, status, _) in ENDS.items()]
    for mark, (_, _, message) in zip(found.marks, ENDS.values(), strict=True):
        assert message in mark.message, mark
    assert (found.score, found.total) == (1, 6)


@pytest.mark.slow
def test_a_solution_that_does_not_end_is_interrupted(tmp_path):
    hangs = master("while True:\n    pass\ndef needs(seen, prompt):\n    return 1")
    (mark,) = grade(save(hangs, tmp_path / "copy.ipynb"), masters=tmp_path, timeout=5).marks
    assert (mark.status, mark.message) == ("error", "no answer within 5 s")


def test_a_notebook_without_exercises_cannot_be_graded(tmp_path):
    with pytest.raises(CourseError, match="found none"):
        grade(save(v4.new_notebook(cells=[code("1")]), tmp_path / "x.ipynb"), masters=tmp_path)
    (tmp_path / "y.ipynb").write_text("no notebook")
    with pytest.raises(CourseError, match="expected a Jupyter notebook"):
        grade(tmp_path / "y.ipynb", masters=tmp_path)
    with pytest.raises(CourseError, match="found none"):
        grade(tmp_path / "z.ipynb", masters=tmp_path)


# -- commands ----------------------------------------------------------------------------------------------------------------


def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *args: Any) -> tuple[int, str, str]:
    monkeypatch.setattr(sys, "argv", ["agl", *map(str, args)])
    with pytest.raises(SystemExit) as exit_:
        main()
    out, err = capsys.readouterr()
    return int(exit_.value.code or 0), out, err


def test_student_then_grade(tmp_path, monkeypatch, capsys):
    masters = tmp_path / "masters"
    save(master(), masters / "99_title.ipynb")
    status, out, _ = run(monkeypatch, capsys, "course", "student", tmp_path / "out", "--notebooks", masters)
    assert status == 0
    assert out.split() == [str(tmp_path / "out" / "99_title.ipynb")]
    status, out, _ = run(monkeypatch, capsys, "course", "grade", tmp_path / "out" / "99_title.ipynb", "--notebooks", masters, "--json")
    assert status == 0
    found = json.loads(out)
    assert (found["score"], found["total"]) == (0, 1)
    assert found["notebooks"][0]["exercises"] == [
        {
            "exercise": "needs_new_row",
            "title": "A new row",
            "status": "unsolved",
            "message": "not yet solved: replace the line that raises NotImplementedError",
        }
    ]


def test_mistakes_on_the_command_line_are_one_paragraph(tmp_path, monkeypatch, capsys):
    status, _, err = run(monkeypatch, capsys, "course", "student", tmp_path / "out", "--only", "77")
    assert status != 0
    assert "expected lessons 77" in err
    assert "Traceback" not in err
    assert not (tmp_path / "out").exists()
