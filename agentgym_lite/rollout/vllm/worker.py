"""What is added to vLLM's workers: loading a policy's weights from a folder (vLLM's ``worker_extension_cls``)."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from safetensors import safe_open

from agentgym_lite.rollout.vllm.weights import Weights, load_into


def keep_plain_weights() -> None:
    """Keep vLLM on a CPU from packing weights when it loads them: what is loaded later would not reach the packed copies.

    Nothing says so: vLLM reports success and goes on with the weights from before. To be called before the model is made.
    """
    import_module("vllm._custom_ops")._supports_onednn = False
    import_module("vllm.model_executor.layers.utils").check_cpu_sgl_kernel = lambda *shape_and_type: False


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
