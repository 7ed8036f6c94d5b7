"""What must also hold on a CUDA device. Run with ``benchmarks/gpu.sh`` or ``pytest tests/gpu -m gpu``."""

import pytest
import torch

from agentgym_lite.config import parse_config
from agentgym_lite.models import load_model, load_tokenizer
from agentgym_lite.rollout.native import NativeEngine
from agentgym_lite.rollout.types import SamplingParams

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no CUDA device here (see `agl doctor`)"),
]

SAMPLING = SamplingParams(temperature=0.8, max_new_tokens=24)


def play(engine, prompts, turns):
    """Sampled conversations without an environment: per session all token ids, and (position, log-prob) of the sampled ones."""
    sessions = {engine.open(): i for i in range(len(prompts))}
    ids = [list(p) for p in prompts]
    sampled = [[] for _ in prompts]
    for turn in range(turns):
        for session, i in sessions.items():
            new = prompts[i] if turn == 0 else [5 + i, 6, 7]
            ids[i] += [] if turn == 0 else new
            engine.submit(session, new, SAMPLING, seed=1000 * turn + i)
        waiting = len(prompts)
        while waiting:
            for reply in engine.step():
                i = sessions[reply.session]
                sampled[i] += zip(range(len(ids[i]), len(ids[i]) + len(reply.token_ids)), reply.logprobs, strict=True)
                ids[i] += reply.token_ids
                waiting -= 1
    for session in sessions:
        engine.release(session)
    return ids, sampled


@pytest.mark.parametrize(("dtype", "worst", "mean"), [("float32", 1e-4, 1e-5), ("bfloat16", 0.5, 0.03)])
def test_engine_logprobs_equal_a_plain_forward_pass_on_cuda(dtype, worst, mean):
    model = load_model("tiny", dtype).to("cuda").eval()
    stop_ids = [model.config.eos_token_id] if isinstance(model.config.eos_token_id, int) else []
    engine = NativeEngine(model, max_sessions=6, max_length=512, stop_ids=stop_ids, device="cuda")
    prompts = [list(range(10, 30 + 7 * i)) for i in range(6)]
    conversations, sampled = play(engine, prompts, turns=3)
    differences = []
    for ids, found in zip(conversations, sampled, strict=True):
        with torch.inference_mode():
            logits = model(torch.tensor([ids], device="cuda")).logits[0].float() / SAMPLING.temperature
        logprobs = logits.log_softmax(-1)
        differences += [abs(logprobs[at - 1, ids[at]].item() - value) for at, value in found]
    assert len(differences) >= 6 * 3
    assert max(differences) < worst
    assert sum(differences) / len(differences) < mean


def test_one_training_step_on_cuda(tmp_path):
    from agentgym_lite.training import Trainer

    config = parse_config(
        {
            "envs": [{"name": "babyai", "tasks": ["goto"], "rounds": {"rounds": 6}}],
            "algorithm": {"group_size": 8, "zero_variance": "keep"},
            "optim": {"lr": 1e-4},
            "run": {"steps": 1, "groups_per_step": 4, "out": str(tmp_path / "run")},
        }
    )
    model = load_model("tiny").to("cuda")
    before = {k: v.detach().clone() for k, v in model.named_parameters()}
    result = Trainer(config, model=model, tokenizer=load_tokenizer("tiny")).train()
    assert result.step == 1
    assert all(p.is_cuda and torch.isfinite(p).all() for p in model.parameters())
    assert any(not torch.equal(before[k], p) for k, p in model.named_parameters())
    assert (result.checkpoint / "model.safetensors").stat().st_size > 0
