"""The report of a run: numbers equal the JSON, one file without outside parts, clear errors."""

from __future__ import annotations

import json
import re

import pytest
from viewer_factory import metrics, results, write_run

from agentgym_lite.evaluation.intervals import wilson
from agentgym_lite.viewer import ReportData, RunFolderError, Score, curves_html, load_report_data, write_report
from agentgym_lite.viewer.charts import moving, nice_ticks
from agentgym_lite.viewer.plots import learning_curves, rounds_stages
from agentgym_lite.viewer.report import env_groups, flatten, headline


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run folder, the report in it, and the decoder of its tokens."""
    folder, tokenizer = write_run(tmp_path_factory.mktemp("run"))
    return folder, write_report(folder, tokenizer.decode), tokenizer.decode


def test_table_shows_the_counts_of_the_json(run):
    folder, report, _ = run
    table = re.search(r"<table>.*?</table>", report.read_text(), re.DOTALL).group()
    lines = [re.findall(r"(\d+)/(\d+)</small>", line) for line in re.findall(r"<tr class.*?</tr>", table, re.DOTALL)]
    stored = json.loads((folder / "report.json").read_text())["results"]
    expected = [[(str(r[c]["successes"]), str(r[c]["n"])) for c in ("random", "base", "trained", "expert")] for r in stored]
    assert lines[1:3] + lines[4:] == expected
    assert lines[0] == [("14", "100"), ("33", "100"), ("83", "100"), ("100", "100")]
    assert lines[3] == [("1", "97"), ("20", "97"), ("51", "97"), ("97", "97")]


def test_bars_stand_at_the_wilson_interval(run):
    _, report, _ = run
    low, high = wilson(24, 60).low, wilson(24, 60).high
    span = f'<i class="span before" style="left:{100 * low:.1f}%;width:{100 * (high - low):.1f}%"></i>'
    assert span + '<b class="dot before" style="left:40.0%"></b>' in report.read_text()
    assert 'aria-label="before 40% [29, 53], after 95% [86, 98]"' in report.read_text()


def test_report_is_one_file_without_outside_parts(run):
    _, report, _ = run
    page = report.read_text()
    links = re.findall(r"(?:src|href|srcset|action)\s*=|url\(|@import", page)
    assert links == []
    # the text of a command and the name of SVG, not links
    assert set(re.findall(r"https?://[^\s<\"\\]+", page)) == {"https://example.org/agentgym-lite", "http://www.w3.org/2000/svg"}
    assert "default-src &#39;none&#39;" in page
    assert report.stat().st_size < 3_000_000


def test_the_same_folder_gives_the_same_report(run):
    folder, report, decode = run
    first = report.read_bytes()
    assert write_report(folder, decode).read_bytes() == first


def test_headline_says_which_way_it_went():
    data = ReportData(title="t", command="c", results=results(), times_s={"train": 288.4})
    sentence = "In 4 min 48 s of training, success on held-out items rose from 33% to 83% on babyai and rose from 21% to 53% on textcraft."
    assert headline(data) == sentence
    worse = [r.model_copy(update={"trained": r.base, "base": r.trained}) for r in results()]
    assert "fell from 83% to 33% on babyai" in headline(data.model_copy(update={"results": worse}))
    same = [r.model_copy(update={"trained": r.base}) for r in results()]
    assert headline(ReportData(title="t", command="c", results=same)).startswith("Success on held-out items stayed at 33% on babyai")


def test_an_environment_pools_its_tasks_and_leaves_out_a_column_that_one_lacks():
    rows = [results()[0].model_copy(update={"random": None}), results()[1]]
    (group,) = env_groups(rows)
    assert (group.total.base, group.total.random) == (Score(n=100, successes=33), None)


def test_score_writes_its_interval_and_reads_it_back():
    score = Score(n=60, successes=24)
    stored = json.loads(score.model_dump_json())
    assert stored == {"n": 60, "successes": 24, "rate": 0.4, "low": wilson(24, 60).low, "high": wilson(24, 60).high}
    assert Score.model_validate(stored) == score
    with pytest.raises(ValueError, match="61 successes out of 60"):
        Score(n=60, successes=61)


def test_settings_are_named_as_the_command_line_names_them():
    settings = {"envs": [{"name": "babyai", "tasks": []}], "optim": {"lr": 0.001, "betas": [0.9, 0.999]}, "run": {"time_limit_s": None}}
    assert list(flatten(settings)) == [
        ("envs.0.name", "babyai"),
        ("envs.0.tasks", "[]"),
        ("optim.lr", "0.001"),
        ("optim.betas", "[0.9, 0.999]"),
        ("run.time_limit_s", "null"),
    ]


def test_curves_hold_every_step_and_the_stages():
    lines = metrics(60)
    charts = {c.title: c for c in learning_curves(lines)}
    babyai, textcraft = charts["Success while training"].series
    assert [p.value for p in babyai.points] == [m["env/babyai/success"] for m in lines]
    assert (babyai.label, textcraft.label) == ("babyai", "textcraft")
    stages = [(s.label, s.start, s.end) for s in rounds_stages(lines)]
    assert stages == [("6 / 8 rounds", 1, 21), ("10 / 12 rounds", 21, 41), ("14 / 20 rounds", 41, 60)]
    assert curves_html(lines).body.count("<figure") == len(charts) == 6


def test_metrics_that_are_missing_leave_their_chart_out():
    lines = [{"step": 1, "reward/mean": 0.5}, {"step": 2}]
    assert [c.title for c in learning_curves(lines)] == ["Reward per episode"]
    assert learning_curves([]) == []
    assert rounds_stages([{"step": 1, "env/a/max_rounds": 5}, {"step": 2, "env/a/max_rounds": 5}]) == []


def test_ticks_and_moving_means_by_hand():
    assert nice_ticks(0, 1) == [0, 0.5, 1]
    assert nice_ticks(3, 21) == [5, 10, 15, 20]
    assert nice_ticks(-0.003, 0.061) == [0, 0.02, 0.04, 0.06]
    assert nice_ticks(2, 2) == [2]
    assert moving([1, 3, 5, 7], 2) == [1, 2, 4, 6]


def test_a_flat_curve_and_a_single_step_can_be_drawn():
    for lines in ([{"step": 3, "reward/mean": 0.0}], [{"step": s, "reward/mean": 0.5} for s in (1, 2)]):
        assert "nan" not in curves_html(lines).body


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("report.json", None, "expected a run folder with report.json"),
        ("report.json", '{"title": 1}', "is not a run report: title"),
        ("metrics.jsonl", None, "the run folder is not complete"),
        ("metrics.jsonl", '{"step": 1}\n{"ste', "line 2 of .* is not JSON"),
        ("metrics.jsonl", "[1]\n", "line 1 of .*: expected an object, found list"),
        ("trajectories.jsonl", "", "asks for line 0 .* past its end"),
        ("trajectories.jsonl", "{}\n", "line 1 of .* is not a trajectory"),
    ],
)
def test_a_broken_folder_gets_one_clear_error(tmp_path, name, content, message):
    folder, tokenizer = write_run(tmp_path, "textcraft")
    if content is None:
        (folder / name).unlink()
    else:
        (folder / name).write_text(content)
    with pytest.raises(RunFolderError, match=message):
        write_report(folder, tokenizer.decode)


def test_a_missing_tokenizer_is_named(tmp_path):
    folder, _ = write_run(tmp_path, "textcraft")
    data = load_report_data(folder).model_copy(update={"checkpoint": "checkpoints/last"})
    (folder / "report.json").write_text(data.model_dump_json())
    with pytest.raises(RunFolderError, match="expected a tokenizer in"):
        write_report(folder)
