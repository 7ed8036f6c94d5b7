"""``python -m agentgym_lite.rollout.vllm.serve MODEL [options of vLLM's server]``: a server that takes a policy's weights during a run.

It is vLLM's own OpenAI-compatible server, with the settings that rollouts need. What takes weights has no access control in vLLM: it
listens on this machine alone unless ``--host`` says otherwise, and then belongs into a network where all are trusted.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from agentgym_lite.models import model_dir
from agentgym_lite.rollout.vllm.errors import check_installed

#: The endpoints through which weights come.
_ENVIRONMENT = {"VLLM_SERVER_DEV_MODE": "1", "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1", "VLLM_NO_USAGE_STATS": "1"}
_OPTIONS = {
    "--host": "127.0.0.1",
    "--worker-extension-cls": "agentgym_lite.rollout.vllm.worker.PolicyLoader",
    "--logprobs-mode": "processed_logprobs",
    "--generation-config": "vllm",
}
#: For a machine without GPU: no C++ compiler needed, and no memory that vLLM takes unasked.
_CPU_ENVIRONMENT = {"TORCH_COMPILE_DISABLE": "1", "VLLM_CPU_KVCACHE_SPACE": "1"}


def command(arguments: Sequence[str], on_cpu: bool) -> tuple[list[str], dict[str, str]]:
    """Command line and additional environment of the server; options that ``arguments`` gives stay as they are."""
    if not arguments or arguments[0].startswith("-"):
        raise SystemExit("usage: python -m agentgym_lite.rollout.vllm.serve MODEL [options of vLLM's server]")
    model, *rest = arguments
    given = {a.partition("=")[0] for a in rest}
    options = [part for name, value in _OPTIONS.items() if name not in given for part in (name, value)]
    if on_cpu and "--enforce-eager" not in given:
        options.append("--enforce-eager")
    program = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", model_dir(model)]
    return [*program, "--enable-prefix-caching", *options, *rest], _ENVIRONMENT | (_CPU_ENVIRONMENT if on_cpu else {})


def main() -> None:
    """Become the server."""
    from torch import cuda

    check_installed()
    line, environment = command(sys.argv[1:], on_cpu=not cuda.is_available())
    os.execve(line[0], line, environment | os.environ)


if __name__ == "__main__":
    main()
