"""vLLM in this process, on the policy's own device."""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch
import torch.distributed as dist

from agentgym_lite.lora import base_model
from agentgym_lite.rollout.vllm.backend import Reply, Request
from agentgym_lite.rollout.vllm.errors import VllmError, WeightSyncError, check_installed
from agentgym_lite.rollout.vllm.weights import (
    adapter_rank,
    frozen_weights,
    keep_plain_weights,
    load_into,
    policy_weights,
    save_adapter,
)

#: ``setdefault`` before vLLM is imported, so that one's own settings stay: no statistics sent, no threads bound to cores.
_ENVIRONMENT = {"VLLM_NO_USAGE_STATS": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "VLLM_LOGGING_LEVEL": "WARNING"}
#: Tokens per block of the prefix cache on a CPU; vLLM's own choice there, 128, shares little among short turns.
_CPU_BLOCK = 32


def import_vllm() -> Any:
    """The package ``vllm``, ready to run its engine in this process. Raises ``VllmError`` if it is not installed or does not load."""
    check_installed()
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    try:
        module = import_module("vllm")
        module.LLM  # noqa: B018 - loads what the package imports when first used
    except (ImportError, RuntimeError) as e:  # RuntimeError: a torchvision that does not match torch
        raise VllmError(f"the installed vllm does not load: {str(e).splitlines()[0]:.200}; see docs/vllm.md") from e
    return module


class LocalBackend:
    """A vLLM engine on the device of ``model``, without tokenizer; its weights come from ``model`` alone, never from a file.

    It starts with meaningless weights: one that a push does not deliver shows at once. With ``adapter`` the weights below the adapters
    are pushed once and the adapters each time. On a GPU it takes the share ``gpu_memory`` of the memory, and with ``sleep`` gives it
    back between rollouts. Raises ``VllmError`` if vLLM is missing or cannot run the model on a CPU.
    """

    def __init__(
        self, model: Any, *, max_sessions: int, max_length: int, dtype: torch.dtype, adapter: bool, gpu_memory: float, sleep: bool
    ) -> None:
        vllm = import_vllm()
        on_cpu = next(model.parameters()).device.type == "cpu"
        self._adapter, self._sleeps = adapter, sleep and not on_cpu
        self._asleep = self._has_base = False
        # One small function of vLLM's sampler is compiled, on a CPU by a C++ compiler that may not be there.
        self._stance = partial(torch.compiler.set_stance, "force_eager") if on_cpu else nullcontext
        self._version = 0
        self._lora: Any = None
        self._folder = tempfile.TemporaryDirectory(prefix="agl-vllm-")
        arguments: dict[str, Any] = {
            "model": _write_config(model, Path(self._folder.name)),
            "load_format": "dummy",
            "skip_tokenizer_init": True,
            "dtype": str(dtype).removeprefix("torch."),
            "max_model_len": max_length,
            "max_num_seqs": max_sessions,
            "enable_prefix_caching": True,
            "logprobs_mode": "processed_logprobs",
            "disable_log_stats": True,
        }
        if adapter:
            ranks = get_args(import_module("vllm.config.lora").MaxLoRARanks)
            arguments |= {"enable_lora": True, "max_loras": 1, "max_lora_rank": adapter_rank(model, ranks)}
        if on_cpu:
            keep_plain_weights()
            _check_heads(base_model(model).config)
            size = _cache_bytes(base_model(model).config, dtype, max_sessions, max_length)
            arguments |= {"enforce_eager": True, "block_size": _CPU_BLOCK, "kv_cache_memory_bytes": size}
        else:
            arguments |= {"gpu_memory_utilization": gpu_memory, "enable_sleep_mode": self._sleeps}
        self._joined = dist.is_initialized() and dist.get_world_size() > 1
        if self._joined:
            arguments["distributed_executor_backend"] = "external_launcher"  # the run's processes, each with a vLLM of its own
        with _generators_kept():
            self._engine = import_module("vllm.v1.engine.llm_engine").LLMEngine.from_engine_args(vllm.EngineArgs(**arguments))
        self._vllm = vllm

    def add(self, request: Request) -> None:
        """Begin to sample."""
        s = request.sampling
        params = self._vllm.SamplingParams(
            temperature=s.temperature,
            top_p=s.top_p,
            seed=request.seed,
            max_tokens=request.limit,
            logprobs=0,  # that of the sampled token alone
            stop_token_ids=list(request.stop_ids),
            ignore_eos=True,  # those are all
            detokenize=False,
        )
        prompt = {"type": "token", "prompt_token_ids": list(request.prompt)}
        self._engine.add_request(str(request.number), prompt, params, lora_request=self._lora)

    def poll(self) -> list[Reply]:
        """One step of the engine: a token for each request."""
        with _generators_kept(), self._stance():
            return [_reply(output) for output in self._engine.step() if output.finished]

    def cancel(self, number: int) -> None:
        """Take a request out of the batch."""
        self._engine.abort_request([str(number)])

    def push(self, model: Any) -> None:
        """Load the weights in place. Raises ``WeightSyncError`` if some were not loaded or the cache cannot be cleared."""
        if self._asleep:
            self._engine.wake_up(tags=["weights"])
        if not self._adapter:
            self._load(policy_weights(model))
        elif not self._has_base:
            self._load(frozen_weights(model))
            self._has_base = True
        if self._asleep:
            self._engine.wake_up(tags=["kv_cache"])
            self._asleep = False
        if self._adapter:
            self._load_adapter(model)
        if not self._engine.reset_prefix_cache():
            raise WeightSyncError("expected vLLM to clear its prefix cache after a sync, found it in use; release all sessions first")

    def _load(self, weights: Any) -> None:
        (missing,) = self._engine.apply_model(lambda module: load_into(module, weights))
        if missing:
            raise WeightSyncError(f"vLLM has {len(missing)} weights that the policy lacks, the first is '{missing[0]}'; see docs/vllm.md")

    def _load_adapter(self, model: Any) -> None:
        self._version += 1
        folder = Path(self._folder.name) / f"adapter-{self._version}"
        save_adapter(model, folder)
        if self._lora is not None:
            self._engine.remove_lora(self._lora.lora_int_id)
        self._lora = import_module("vllm.lora.request").LoRARequest(folder.name, self._version, str(folder))
        self._engine.add_lora(self._lora)
        for file in folder.iterdir():
            file.unlink()

    def sleep(self) -> None:
        """Free the device's memory: the cache is dropped, and so are weights that a push brings again."""
        if self._sleeps and not self._asleep:
            self._engine.sleep(level=1 if self._adapter else 2)
            self._asleep = True

    def close(self) -> None:
        """Free what the engine holds."""
        if not self._joined:  # it would end the exchange among the run's processes, which it has joined
            self._engine.engine_core.shutdown()
        self._folder.cleanup()


def _reply(output: Any) -> Reply:
    (sample,) = output.outputs
    ids = list(sample.token_ids)
    logprobs = [float(at[token].logprob) for token, at in zip(ids, sample.logprobs, strict=True)]
    return Reply(int(output.request_id), ids, logprobs, sample.finish_reason == "stop")


def _write_config(model: Any, folder: Path) -> str:
    base = base_model(model)
    if not base.config.architectures:
        base.config.architectures = [type(base).__name__]
    base.config.save_pretrained(folder)
    return str(folder)


def _cache_bytes(config: Any, dtype: torch.dtype, sessions: int, length: int) -> int:
    """Room for all sessions at their full length, and one block that vLLM keeps."""
    blocks = sessions * -(-length // _CPU_BLOCK) + 1
    return int(2 * config.num_hidden_layers * config.num_key_value_heads * _head_dim(config) * dtype.itemsize * blocks * _CPU_BLOCK)


def _check_heads(config: Any) -> None:
    known = import_module("vllm.v1.attention.backends.cpu_attn").CPUAttentionBackend.get_supported_head_sizes()
    if _head_dim(config) not in known:
        raise VllmError(
            f"expected attention heads of {', '.join(map(str, known))} channels for vLLM on a CPU, found {_head_dim(config)}; "
            "use rollout.engine=native"
        )


def _head_dim(config: Any) -> int:
    return getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads


@contextmanager
def _generators_kept() -> Iterator[None]:
    """vLLM seeds all global generators of the process and draws from torch's, although every request has a seed; a run's are its own."""
    python, numpy, own = random.getstate(), np.random.get_state(), torch.get_rng_state()
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
        torch.set_rng_state(own)
