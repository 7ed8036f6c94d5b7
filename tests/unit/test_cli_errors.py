"""The command line as a user meets it: every mistake gets one clear paragraph, no traceback, and the right exit code."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from agentgym_lite.cli import main
from agentgym_lite.cli.errors import UserError, explain

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def agl(monkeypatch, capsys):
    """Run ``agl`` as its entry point does: exit code, stdout and stderr."""

    def run(*args):
        monkeypatch.setattr(sys, "argv", ["agl", *map(str, args)])
        monkeypatch.setenv("COLUMNS", "200")
        with pytest.raises(SystemExit) as exit_:
            main()
        out, err = capsys.readouterr()
        return exit_.value.code, out, err

    return run


def assert_one_error(done, *words):
    """Exit code 1, one line on stderr that holds ``words``, nothing on stdout."""
    code, out, err = done
    assert (code, out) == (1, "")
    lines = err.strip().splitlines()
    assert len(lines) == 1, err
    assert lines[0].startswith("agl: ")
    for word in words:
        assert str(word) in lines[0]


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text(f"envs:\n- name: babyai\nrun:\n  out: {tmp_path / 'run'}\n  steps: 1\n")
    return path


def test_a_wrong_config_key_names_the_key_and_those_allowed(agl, config):
    assert_one_error(agl("train", config, "optim.learning_rate=1"), "unknown setting 'optim.learning_rate'", "allowed there: lr, ")


def test_a_wrong_value_says_what_is_allowed(agl, config):
    assert_one_error(agl("train", config, "run.steps=none"), "run.steps", "found 'none'")


def test_a_missing_config_file(agl):
    assert_one_error(agl("train", "no/such.yaml"), "expected a config file at 'no/such.yaml'")


@pytest.mark.parametrize("command", [["serve", "atari"], ["rollout", "--env", "atari", "--out", "never"]])
def test_an_unknown_environment_lists_the_known_ones(agl, command):
    assert_one_error(agl(*command), "no environment is called 'atari'", "babyai", "textcraft")


def test_an_unknown_environment_in_a_config(agl, config):
    assert_one_error(agl("train", config, "envs.0.name=atari"), "atari", "babyai", "textcraft")


def test_a_port_in_use(agl):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        s.listen()
        port = s.getsockname()[1]
        assert_one_error(agl("serve", "textcraft", "--port", port), f"port {port}", "in use", "--port")


def test_a_public_address_without_a_token(agl):
    assert_one_error(agl("serve", "textcraft", "--host", "0.0.0.0", "--port", 0), "token")


@pytest.mark.parametrize("command", [["eval", "--agent", "expert", "--only", "babyai"], ["rollout", "--env", "babyai"]])
def test_a_dead_server(agl, command, tmp_path):
    url = f"http://127.0.0.1:{free_port()}"
    assert_one_error(agl(*command, "--url", url, "--out", tmp_path / "out"), url)


def test_an_unknown_suite(agl, tmp_path):
    assert_one_error(agl("eval", "--suite", "paper99", "--out", tmp_path), "paper99", "shipped suites: lite27")


def test_an_edited_manifest(agl, tmp_path):
    text = (ROOT / "data/suites/lite27.json").read_text().replace('"max_rounds": 20', '"max_rounds": 90', 1)
    (tmp_path / "mine.json").write_text(text)
    assert_one_error(agl("eval", "--suite", tmp_path / "mine.json", "--out", tmp_path / "out"), "does not match its own hash")


def test_an_unknown_task(agl, tmp_path):
    assert_one_error(agl("eval", "--agent", "expert", "--only", "alfworld", "--out", tmp_path), "no environment or task 'alfworld'")


@pytest.mark.parametrize("name", ["no/such/model", "expart"])
def test_a_missing_model(agl, name, tmp_path):
    assert_one_error(agl("eval", "--agent", name, "--out", tmp_path / "out"), name, "expert", "random", "tiny")


def test_a_half_written_checkpoint(agl, tmp_path):
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text('{"model_type": "qwen2"}')
    (model / "model.safetensors").write_bytes(b"\x10\x00\x00")
    assert_one_error(agl("eval", "--agent", model, "--out", tmp_path / "out"), str(model))


def test_results_of_another_evaluation_are_not_mixed(agl, tmp_path):
    assert agl("rollout", "--env", "babyai", "-n", 1, "--out", tmp_path)[0] == 0
    assert_one_error(agl("rollout", "--env", "babyai", "-n", 1, "--agent", "random", "--out", tmp_path), "another evaluation", "--out")


def test_demo_never_touches_a_folder_that_it_did_not_make(agl, tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    assert_one_error(agl("demo", "--out", tmp_path), "holds files that no demo has made")
    assert (tmp_path / "thesis.tex").read_text() == "years of work"


@pytest.mark.parametrize(
    "command",
    [
        ["serve"],
        ["train"],
        ["rollout", "--env", "babyai"],
        ["rollout", "--env", "babyai", "--out", "never", "--split", "test"],
        ["rollout", "--env", "babyai", "--out", "never", "-n", "0"],
        ["eval", "--out", "never", "--temperature", "-1"],
        ["serve", "babyai", "--port", "99999"],
        ["fly"],
        ["doctor", "--no-such-option"],
    ],
)
def test_wrong_usage_exits_with_2(agl, command):
    code, out, err = agl(*command)
    assert (code, out) == (2, "")
    assert "Usage" in err


def test_a_mistake_in_a_process_of_its_own_has_no_traceback():
    command = [sys.executable, "-m", "agentgym_lite.cli", "serve", "atari"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert_one_error((done.returncode, done.stdout, done.stderr), "no environment is called 'atari'")


def test_a_fault_of_the_kit_keeps_its_traceback(monkeypatch):
    def fail(*_):
        raise RuntimeError("a fault of the kit")

    monkeypatch.setattr("agentgym_lite.cli.serving.run_doctor", fail)
    monkeypatch.setattr(sys, "argv", ["agl", "doctor"])
    with pytest.raises(RuntimeError, match="a fault of the kit"):
        main()


def test_an_interrupt_exits_with_130(monkeypatch, agl):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("agentgym_lite.cli.serving.run_doctor", interrupt)
    assert agl("doctor")[0] == 130


def test_only_errors_that_are_explained_lose_their_traceback(tmp_path):
    assert explain(UserError("do  this\n instead")) == "do this instead"
    assert explain(RuntimeError("a fault of the kit")) is None
    assert explain(KeyError("x")) is None
    with pytest.raises(OSError, match="No such file") as e:
        (tmp_path / "absent").read_text()
    assert explain(e.value) == f"No such file or directory: '{tmp_path / 'absent'}'"
