"""Commands that do their work: what they print, write and leave behind."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from agentgym_lite import __version__, doctor
from agentgym_lite.cli import main
from agentgym_lite.cli.server_process import ServerProcess

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def agl(monkeypatch, capsys):
    """Run ``agl`` as its entry point does; its stdout. Fails unless it exits with 0."""

    def run(*args):
        monkeypatch.setattr(sys, "argv", ["agl", *map(str, args)])
        monkeypatch.setenv("COLUMNS", "200")
        with pytest.raises(SystemExit) as exit_:
            main()
        out, err = capsys.readouterr()
        assert exit_.value.code == 0, err
        return out

    return run


def test_version(agl):
    assert agl("--version").strip() == f"agentgym-lite {__version__}"


def test_help_names_every_command(agl):
    text = agl("--help")
    for command in ("demo", "serve", "rollout", "train", "eval", "doctor"):
        assert command in text


def test_help_comes_without_importing_torch():
    code = "import sys; from agentgym_lite.cli.app import app; sys.exit('torch' in sys.modules or 'transformers' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_rollout_writes_trajectories_and_repeats_nothing(agl, tmp_path):
    command = ["rollout", "--env", "textcraft", "-n", 3, "--split", "eval", "--out", tmp_path, "--json"]
    found = json.loads(agl(*command))
    assert found["overall"]["success"]["value"] == 1.0
    assert found["overall"]["episodes"] == 3
    lines = (tmp_path / "trajectories.jsonl").read_text()
    assert len({json.loads(line)["spec"]["item_id"] for line in lines.splitlines()}) == 3
    assert json.loads((tmp_path / "results.json").read_text()) == found
    assert json.loads(agl(*command)) == found
    assert (tmp_path / "trajectories.jsonl").read_text() == lines


def test_eval_over_http_equals_eval_in_process(agl, tmp_path):
    command = ["eval", "--agent", "random", "--only", "babyai/pickup", "--json"]
    local = json.loads(agl(*command, "--out", tmp_path / "local"))
    with ServerProcess(["babyai"]) as server:
        remote = json.loads(agl(*command, "--out", tmp_path / "remote", "--url", server.url))
    assert remote == local
    assert local["tasks"].keys() == {"babyai/pickup"}
    assert local["overall"]["episodes"] == 15


def test_eval_prints_a_table(agl, tmp_path):
    text = agl("eval", "--agent", "expert", "--only", "babyai/synth_loc", "-n", 2, "--out", tmp_path)
    assert "expert on lite27" in text
    row = next(line for line in text.splitlines() if "babyai/synth_loc" in line)
    assert "100 %" in row
    assert "pass@2" in text


def test_doctor_json_says_whether_the_demo_can_run(agl):
    found = json.loads(agl("doctor", "--json"))
    names = {c["name"] for c in found["checks"]}
    assert {"python", "torch", "transformers", "threads", "tiny model", "gpu", "vllm", "java", "chromium"} <= names
    assert {"environment babyai", "environment textcraft"} <= names
    assert found["ready"] == all(c["ok"] for c in found["checks"] if c["need"] == "required")
    assert all(c["advice"] for c in found["checks"] if not c["ok"])


def test_doctor_tells_how_to_get_what_is_missing(monkeypatch, tmp_path):
    monkeypatch.setattr(doctor, "TINY_MODEL", tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    found = {c.name: c for c in doctor.examine()}
    assert not found["tiny model"].ok
    assert "git checkout" in found["tiny model"].advice
    assert not found["java"].ok
    assert found["java"].need == "optional"


def is_running(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z" if Path("/proc").is_dir() else True


def wait_until(condition, seconds=15.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.parametrize("leave", ["normally", "by an error"])
def test_the_server_process_ends_with_its_block(leave):
    try:
        with ServerProcess(["textcraft"]) as server:
            assert httpx.get(f"{server.url}/textcraft/health").status_code == 200
            if leave == "by an error":
                raise KeyboardInterrupt
    except KeyboardInterrupt:
        pass
    assert not is_running(server.pid)


def test_the_server_process_does_not_outlive_a_parent_that_is_killed():
    code = (
        "import time; from agentgym_lite.cli.server_process import ServerProcess\n"
        "with ServerProcess(['textcraft']) as s: print(s.pid, flush=True); time.sleep(600)"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    server = int(parent.stdout.readline())
    assert is_running(server)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    wait_until(lambda: not is_running(server))


def test_serve_answers_and_stops_on_interrupt():
    command = [sys.executable, "-m", "agentgym_lite.cli", "serve", "babyai", "--port", "0"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    url = next(word for word in process.stderr.readline().split() if word.startswith("http"))
    wait_until(lambda: httpx.get(f"{url}/babyai/health").status_code == 200)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=15) == 0
    process.stderr.close()
