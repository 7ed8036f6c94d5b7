"""Every lesson's exercises: the solved master scores full marks, the student copy fails each check as not yet solved."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentgym_lite.course.cells import exercises, read_notebook
from agentgym_lite.course.grade import grade
from agentgym_lite.course.student import write_student_copies

MASTERS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))
WITH_CHECKS = [p for p in MASTERS if any(e.check for e in exercises(read_notebook(p)))]


@pytest.mark.slow
@pytest.mark.parametrize("path", WITH_CHECKS, ids=lambda p: p.stem)
def test_the_master_scores_full_marks(path):
    found = grade(path)
    assert found.total >= 3
    assert [(m.exercise, m.status, m.message) for m in found.marks if m.status != "passed"] == []


@pytest.mark.slow
@pytest.mark.parametrize("path", WITH_CHECKS, ids=lambda p: p.stem)
def test_the_student_copy_is_told_that_it_is_not_yet_solved(path, tmp_path):
    (copy,) = write_student_copies([path], tmp_path)
    found = grade(copy)
    assert found.score == 0
    assert {(m.status, m.message.partition(":")[0]) for m in found.marks} == {("unsolved", "not yet solved")}
