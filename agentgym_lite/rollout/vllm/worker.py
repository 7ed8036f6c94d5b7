"""What is added to the workers of vLLM's server (its ``worker_extension_cls``): loading a policy's weights from a folder."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from safetensors import safe_open

from agentgym_lite.rollout.vllm.weights import Weights, keep_plain_weights, load_into

if import_module("vllm.platforms").current_platform.is_cpu():
    keep_plain_weights()  # a worker imports this module before it makes the model


class PolicyLoader:
    """Mixed into the worker of a server; called by name over ``/collective_rpc``."""

    get_model: Any

    def load_policy(self, folder: str) -> dict[str, list[str]]:
        """Load ``model.safetensors`` of a folder; ``missing`` are the model's weights that are not in there."""
        return {"missing": load_into(self.get_model(), _read(Path(folder) / "model.safetensors"))}


def _read(path: Path) -> Weights:
    with safe_open(path, "pt") as f:
        for name in f.keys():  # noqa: SIM118 - not a mapping
            yield name, f.get_tensor(name)
