"""The plan of a run: its needs, and what makes it impossible."""

from __future__ import annotations

import os
from dataclasses import dataclass

from agentgym_lite.config import AnyConfig, Config
from agentgym_lite.plan.memory import GIB, Machine, Memory, pass_tokens, plan_memory, vllm_needs
from agentgym_lite.plan.model import ModelFacts, PlanError, model_facts
from agentgym_lite.plan.work import Throughput, Usage, Work, plan_work


@dataclass(frozen=True)
class Plan:
    """Needs of a run on a machine. ``problems`` make it impossible; ``notes`` do not."""

    model: ModelFacts
    machine: Machine
    memory: Memory
    work: Work
    pass_tokens: int
    problems: list[str]
    notes: list[str]


def make_plan(
    config: AnyConfig,
    *,
    gpus: int | None = None,
    gpu_memory: float | None = None,
    usage: Usage | None = None,
    throughput: Throughput | None = None,
) -> Plan:
    """What ``config`` needs on ``gpus`` devices of ``gpu_memory`` GiB each; by default on what this machine has.

    Raises ``PlanError`` for a method other than ``rl`` and for a model of which nothing is known.
    """
    if not isinstance(config, Config):
        raise PlanError(f"expected a config of method 'rl', found '{config.method}', whose memory depends on its data")
    machine = _machine(config, gpus, gpu_memory)
    model = model_facts(config.model)
    memory = plan_memory(config, model, machine)
    work = plan_work(config, machine.devices, usage, throughput)
    return Plan(
        model,
        machine,
        memory,
        work,
        pass_tokens(config, machine),
        _problems(config, model, machine, memory),
        _notes(config, machine, work),
    )


def _machine(config: Config, gpus: int | None, gpu_memory: float | None) -> Machine:
    import torch

    devices = gpus or 1
    if gpu_memory is not None:
        return Machine("cuda", gpu_memory * GIB, devices)
    if config.model.chosen_device() == "cuda" and torch.cuda.is_available():
        return Machine("cuda", float(torch.cuda.get_device_properties(0).total_memory), devices)
    return Machine("cpu", float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")) / devices, devices)


def _problems(config: Config, model: ModelFacts, machine: Machine, memory: Memory) -> list[str]:
    out = []
    if memory.peak > machine.memory:
        largest = max((i for i in memory.items if i.when in ("always", memory.moment)), key=lambda i: i.bytes)
        where = "GPU" if machine.device == "cuda" else "process on this machine's CPU"
        out.append(
            f"a {where} has {machine.memory / GIB:.1f} GiB and the run needs {memory.peak / GIB:.1f} ({memory.moment}), of which "
            f"{largest.bytes / GIB:.1f} are {largest.name}; {_remedy(largest.name, config)}"
        )
    vllm = config.rollout.vllm
    if config.rollout.engine == "vllm" and vllm.url == "local" and vllm_needs(config, model) > vllm.gpu_memory * machine.memory:
        out.append(
            f"vLLM needs {vllm_needs(config, model) / GIB:.1f} GiB for the weights and one episode, and rollout.vllm.gpu_memory "
            f"{vllm.gpu_memory:g} of {machine.memory / GIB:.1f} is less; raise it, or set rollout.dtype: bfloat16"
        )
    if config.rollout.max_length > model.positions:
        out.append(f"rollout.max_length is {config.rollout.max_length}, but the model was made for {model.positions} positions; lower it")
    if config.rollout.max_new_tokens >= config.rollout.max_length:
        out.append("rollout.max_new_tokens leaves no room for a context in rollout.max_length; lower the first or raise the second")
    return out


def _remedy(largest: str, config: Config) -> str:
    if largest == "engine cache":
        return "lower rollout.max_sessions or rollout.max_length"
    if largest == "activations" and not config.model.gradient_checkpointing:
        return "set model.gradient_checkpointing: true"
    if largest in ("activations", "logits") or "computed again" in largest:
        return "lower optim.micro_batch_tokens or rollout.max_length"
    if config.model.lora is None:
        return "train adapters (model.lora), or shard over more GPUs (--gpus)"
    return "take a smaller model, model.dtype: bfloat16, or a larger device (--gpu-memory)"


def _notes(config: Config, machine: Machine, work: Work) -> list[str]:
    out = []
    episodes = config.run.groups_per_step * config.algorithm.group_size
    if episodes < machine.devices:
        out.append(f"a step has {episodes} episodes for {machine.devices} devices; some will only help with the passes")
    if not work.measured:
        out.append("tokens are the most that the settings allow; --run FOLDER takes what a run has measured")
    if work.hours is None:
        out.append("no throughput is given (--tokens-per-second with --train-tokens-per-second, or --run), so no time can be told")
    return out
