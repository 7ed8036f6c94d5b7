"""SciWorld's numbering of items and its splits; no Java needed."""

from __future__ import annotations

from collections import Counter

import pytest

from agentgym_envs.core import UnknownItem
from agentgym_envs.sciworld import SciWorld, tasks


def test_ranges_of_the_published_numbering() -> None:
    """First and last item of each task as in the data set's table; ``None`` would be the skipped task 2-3."""
    ranges = {t.id: (t.first, t.first + t.variations - 1) for t in tasks.tasks()}
    assert ranges == {
        "1-1": (0, 29),
        "1-2": (30, 59),
        "1-3": (60, 89),
        "1-4": (90, 119),
        "2-1": (120, 659),
        "2-2": (660, 1095),
        "3-1": (1096, 1115),
        "3-2": (1116, 1135),
        "3-3": (1136, 2035),
        "3-4": (2036, 2635),
        "4-1": (2636, 2935),
        "4-2": (2936, 3235),
        "4-3": (3236, 3535),
        "4-4": (3536, 3835),
        "6-1": (3836, 3867),
        "6-2": (3868, 3903),
        "6-3": (3904, 3939),
        "7-1": (3940, 4064),
        "7-2": (4065, 4189),
        "7-3": (4190, 4314),
        "8-1": (4315, 4328),
        "8-2": (4329, 4338),
    }
    assert tasks.item_count() == 4339


@pytest.mark.parametrize(
    ("variations", "train", "test"), [(30, 14, 9), (540, 270, 135), (436, 218, 109), (125, 62, 32), (14, 6, 5), (10, 4, 4)]
)
def test_sizes_of_the_library_splits(variations: int, train: int, test: int) -> None:
    task = tasks.Task("1-1", "any", variations, 0)
    assert (len(task.train), len(task.test)) == (train, test)
    assert task.test[-1] == variations - 1


def test_eval_has_the_papers_counts_and_only_test_variations() -> None:
    items = SciWorld.items("eval")
    assert Counter(SciWorld.task_of(i) for i in items) == {"measure": 53, "test_cond": 83, "find": 44, "chem_mix": 5, "lifespan": 15}
    for index in tasks.eval_items():
        task, variation = tasks.locate(index)
        assert variation in task.test
    assert len({tasks.locate(i)[0].id for i in tasks.eval_items()}) == 14, "every task of the five sub-tasks is there"


def test_train_has_every_training_variation_and_no_other() -> None:
    assert len(SciWorld.items("train")) == sum(len(t.train) for t in tasks.tasks()) == 2162
    assert not set(tasks.train_items()) & set(tasks.eval_items())
    assert {SciWorld.task_of(i) for i in SciWorld.items("train")} == {*tasks.EVAL_COUNTS, "matter", "power", "life_stages"}


def test_items_outside_the_table_are_unknown() -> None:
    for item in (4339, -1, "sciworld_4339", "textcraft_1"):
        with pytest.raises(UnknownItem, match=r"sciworld_0|0 to 4338"):
            SciWorld.task_of(item)
