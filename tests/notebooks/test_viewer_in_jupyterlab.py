"""The viewer inside a real JupyterLab page, run by a real kernel, in headless Chromium."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
sync_api = pytest.importorskip("playwright.sync_api", reason="no Playwright: pip install playwright")
pytest.importorskip("jupyterlab", reason="no JupyterLab: pip install jupyterlab")
pytest.importorskip("anywidget", reason="no anywidget: pip install anywidget")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium found; on Debian or Ubuntu: apt-get install chromium"),
]
PATIENCE_S = 90

CELLS = (
    """from agentgym_lite.agents import ExpertPolicy
from agentgym_lite.client import SessionPool
from agentgym_lite.rollout import EpisodeSpec, play
from agentgym_lite.viewer import TrajectoryViewer, replay_html, with_renderings

specs = [EpisodeSpec("textcraft", f"textcraft_{k}") for k in (29, 30, 31)]
with SessionPool("textcraft", "local") as pool:
    episodes = [with_renderings(e) for e in play(lambda s: ExpertPolicy(s.env), specs, {"textcraft": pool}, 20)]""",
    "TrajectoryViewer(episodes, title='In a notebook')",
    "replay_html(episodes[0], label='static')",
)


@pytest.fixture
def lab(tmp_path) -> Iterator[str]:
    """Address of a JupyterLab whose folder holds ``viewer.ipynb``."""
    cells = [
        {"cell_type": "code", "id": f"c{k}", "source": source, "metadata": {}, "execution_count": None, "outputs": []}
        for k, source in enumerate(CELLS)
    ]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    notebook = {"cells": cells, "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}
    work = tmp_path / "work"
    work.mkdir()
    (work / "viewer.ipynb").write_text(json.dumps(notebook))
    places = ("JUPYTER_CONFIG_DIR", "JUPYTER_RUNTIME_DIR", "JUPYTERLAB_SETTINGS_DIR", "JUPYTERLAB_WORKSPACES_DIR", "IPYTHONDIR")
    environment = {**os.environ, **{name: str(tmp_path / name) for name in places}}
    options = ["--no-browser", "--allow-root", "--ServerApp.ip=127.0.0.1", "--ServerApp.port=0", "--IdentityProvider.token=secret"]
    command = [sys.executable, "-m", "jupyterlab", *options, f"--ServerApp.root_dir={work}"]
    log = tmp_path / "lab.log"
    with log.open("w") as stderr:
        process = subprocess.Popen(command, env=environment, stderr=stderr, stdout=subprocess.DEVNULL)
    try:
        yield f"{_address(process, log)}/lab/tree/viewer.ipynb?token=secret"
    finally:
        process.terminate()
        process.wait(timeout=20)


def _address(process: subprocess.Popen[bytes], log: Path) -> str:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline and process.poll() is None:
        if found := re.search(r"http://127\.0\.0\.1:\d+", log.read_text()):
            return found.group()
        time.sleep(0.2)
    raise AssertionError(f"JupyterLab did not start within {PATIENCE_S} s: {log.read_text()[-2000:]}")


def test_widget_and_static_view_work_in_jupyterlab(lab, tmp_path):
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-background-networking"])
        page = browser.new_page(viewport={"width": 1400, "height": 1000})
        page.set_default_timeout(PATIENCE_S * 1000)
        errors: list[str] = []
        page.on("pageerror", lambda e: errors.append(str(e)))
        page.goto(lab)
        page.get_by_text("Python 3 (ipykernel) | Idle").wait_for()  # without a kernel, running asks for one
        page.get_by_role("menuitem", name="Run", exact=True).click()
        page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
        page.wait_for_selector(".agl .grid .row")
        assert page.locator(".agl h2").first.text_content() == "In a notebook"
        page.locator(".grid .row").nth(2).click()
        page.wait_for_selector(".viewer .pane")
        assert "textcraft_31" in page.locator(".viewer .facts").text_content()
        page.keyboard.press("ArrowRight")
        assert page.locator(".viewer .pane").get_attribute("data-turn") == "1"
        cells = page.locator(".jp-CodeCell").count()
        page.keyboard.press("b")  # JupyterLab's key for a new cell must do nothing in here
        page.keyboard.press("End")
        assert page.locator(".jp-CodeCell").count() == cells
        page.locator(".viewer [name=text]").fill("textcraft_30")
        page.wait_for_function("() => document.querySelector('.viewer .count').textContent.startsWith('1 of 3')")
        static = page.locator(".jp-OutputArea .agl .pane h3", has_text="static")
        static.scroll_into_view_if_needed()
        assert static.is_visible()
        page.screenshot(path=tmp_path / "lab.png")
        assert not [e for e in errors if "agl" in e.lower()]
        browser.close()
