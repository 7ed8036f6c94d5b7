"""The native engine: log-probs against a plain forward pass, sampling, independence of neighbours, sessions, weights."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM, Qwen2Config, Qwen2ForCausalLM

from agentgym_lite.rollout import Generation, NativeEngine, SamplingParams, ScriptedEngine
from agentgym_lite.rollout.decoder import _runs
from agentgym_lite.rollout.native import sample

VOCAB = 61
STOP = (7, 11)


def make_model(family: str = "qwen2", *, tied: bool = True, kv_heads: int = 2, seed: int = 0, **options: Any) -> Any:
    torch.manual_seed(seed)
    size = {
        "vocab_size": VOCAB,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": kv_heads,
        "tie_word_embeddings": tied,
        "initializer_range": 0.3,
        "max_position_embeddings": 512,
        **options,
    }
    model = Qwen2ForCausalLM(Qwen2Config(**size)) if family == "qwen2" else LlamaForCausalLM(LlamaConfig(**size))
    with torch.no_grad():  # fresh biases are zero and fresh norms one: a slip there would not show
        for name, parameter in model.named_parameters():
            if "norm" in name or name.endswith("bias"):
                parameter.add_(0.3 * torch.randn_like(parameter))
    return model.eval()


def make_engine(model: Any, max_sessions: int = 8, max_length: int = 256, **options: Any) -> NativeEngine:
    return NativeEngine(model, max_sessions=max_sessions, max_length=max_length, stop_ids=STOP, **options)


@dataclass
class Talk:
    """One scripted conversation: the contexts to submit, the sampling, and what came back."""

    contexts: list[list[int]]
    sampling: SamplingParams
    seed: int
    row: list[int] = field(default_factory=list)
    logprobs: list[float | None] = field(default_factory=list)
    replies: list[Generation] = field(default_factory=list)

    def submit(self, engine: Any, session: int) -> None:
        turn = len(self.replies)
        self.row += self.contexts[turn]
        self.logprobs += [None] * len(self.contexts[turn])
        engine.submit(session, self.contexts[turn], self.sampling, self.seed * 100 + turn)


def make_talks(count: int, turns: int = 3, temperature: float = 1.0, top_p: float = 1.0, new_tokens: int = 9) -> list[Talk]:
    rng = random.Random(5)

    def ids() -> list[int]:
        return [rng.randrange(VOCAB) for _ in range(rng.choice([1, 2, 5, 17]))]

    return [Talk([ids() for _ in range(turns)], SamplingParams(temperature, top_p, new_tokens), seed) for seed in range(count)]


def run_talks(engine: Any, talks: list[Talk]) -> list[Talk]:
    """Continuous: a talk that ends gives its session to the next."""
    queue, live = list(talks), {}
    while queue or live:
        while queue and len(live) < engine.max_sessions:
            session = engine.open()
            live[session] = queue.pop(0)
            live[session].submit(engine, session)
        for reply in engine.step():
            talk = live[reply.session]
            talk.row += reply.token_ids
            talk.logprobs += reply.logprobs
            talk.replies.append(reply)
            if len(talk.replies) < len(talk.contexts):
                talk.submit(engine, reply.session)
            else:
                engine.release(reply.session)
                del live[reply.session]
    return talks


@torch.no_grad()
def forward_logprobs(model: Any, row: list[int], temperature: float) -> torch.Tensor:
    """Log-prob of each token but the first, by a plain forward pass: [T - 1, V]."""
    return (model(torch.tensor([row])).logits[0, :-1].float() / temperature).log_softmax(-1)


def largest_gap(model: Any, talk: Talk) -> float:
    expected = forward_logprobs(model, talk.row, talk.sampling.temperature)
    return max(
        abs(found - float(expected[i - 1, talk.row[i]]))
        for i, found in enumerate(talk.logprobs)
        if found is not None  # a sampled token
    )


@pytest.mark.parametrize("temperature", [0.7, 1.0])
@pytest.mark.parametrize(
    "model",
    [
        make_model("qwen2", tied=True, kv_heads=2),
        make_model("qwen2", tied=False, kv_heads=1),
        make_model("llama", tied=False, kv_heads=4),
        make_model("llama", tied=True, kv_heads=2, attention_bias=True, mlp_bias=True),
        make_model("llama", kv_heads=2, head_dim=16, rope_parameters={"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}),
    ],
    ids=["qwen2-tied", "qwen2-untied-mqa", "llama-mha", "llama-biases", "llama-head-dim-rope"],
)
def test_logprobs_equal_a_plain_forward_pass_over_many_turns_of_uneven_lengths(model: Any, temperature: float) -> None:
    talks = run_talks(make_engine(model, max_sessions=5), make_talks(12, temperature=temperature))
    assert max(largest_gap(model, t) for t in talks) < 1e-4
    assert {len(r.token_ids) for t in talks for r in t.replies} > {9}  # both cut and stopped replies


def test_greedy_equals_generate_of_transformers() -> None:
    model = make_model()
    talks = run_talks(make_engine(model, max_sessions=4), make_talks(4, turns=2, temperature=0.0, new_tokens=12))
    for talk in talks:
        row: list[int] = []
        for context, reply in zip(talk.contexts, talk.replies, strict=True):
            row += context
            ids = torch.tensor([row])
            out = model.generate(
                ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=12, eos_token_id=list(STOP), pad_token_id=0
            )
            assert reply.token_ids == out[0, len(row) :].tolist()
            row += reply.token_ids
        assert largest_gap(model, Talk(talk.contexts, SamplingParams(1.0), 0, talk.row, talk.logprobs)) < 1e-4


def test_the_stop_token_belongs_to_the_reply_and_to_the_context_of_the_next_turn() -> None:
    model = make_model()
    talks = run_talks(make_engine(model), make_talks(8, new_tokens=40))
    stopped = [r for t in talks for r in t.replies if r.finished_by_stop]
    assert stopped
    assert all(r.token_ids[-1] in STOP and not set(r.token_ids[:-1]) & set(STOP) for r in stopped)
    assert all(len(r.token_ids) == 40 for t in talks for r in t.replies if not r.finished_by_stop)


@pytest.mark.parametrize("max_sessions", [1, 2, 16])
def test_replies_do_not_depend_on_sessions_order_or_neighbours(max_sessions: int) -> None:
    model = make_model()
    expected = {t.seed: t.row for t in run_talks(make_engine(model, max_sessions=16), make_talks(16))}
    shuffled = make_talks(16)
    random.Random(1).shuffle(shuffled)
    found = {t.seed: t.row for t in run_talks(make_engine(model, max_sessions=max_sessions), shuffled[:11])}
    assert found == {seed: expected[seed] for seed in found}
    assert len(found) == 11


def test_replies_do_not_depend_on_how_late_each_turn_is_submitted() -> None:
    model = make_model()
    expected = [t.row for t in run_talks(make_engine(model), make_talks(6))]
    engine, talks = make_engine(model), make_talks(6)
    rng = random.Random(2)
    sessions = {engine.open(): t for t in talks}
    idle = dict(sessions)
    while sessions:
        for session in [s for s in idle if rng.random() < 0.4]:
            idle.pop(session).submit(engine, session)
        for reply in engine.step():
            talk = sessions[reply.session]
            talk.row += reply.token_ids
            talk.replies.append(reply)
            if len(talk.replies) < len(talk.contexts):
                idle[reply.session] = talk
            else:
                engine.release(reply.session)
                del sessions[reply.session]
    assert [t.row for t in talks] == expected


def test_a_group_with_one_opening_shares_its_computation_and_still_samples_apart() -> None:
    model = make_model()
    opening = list(range(20, 50))
    talks = [Talk([opening, [3, seed]], SamplingParams(max_new_tokens=12), seed) for seed in range(6)]
    engine = make_engine(model)
    packed: list[int] = []
    forward = engine._decoder.forward
    engine._decoder.forward = lambda tokens, *rest: packed.append(len(tokens)) or forward(tokens, *rest)  # type: ignore[method-assign, func-returns-value]
    run_talks(engine, talks)
    assert packed[0] == len(opening)  # computed once for six
    assert max(largest_gap(model, t) for t in talks) < 1e-4
    assert len({tuple(t.row) for t in talks}) == 6


def test_long_queues_are_computed_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    model = make_model()
    expected = [t.row for t in run_talks(make_engine(model, max_sessions=12), make_talks(12))]
    monkeypatch.setattr("agentgym_lite.rollout.native.PROMPT_TOKENS", 10)
    assert [t.row for t in run_talks(make_engine(model, max_sessions=12), make_talks(12))] == expected


def test_a_slot_that_is_used_again_shows_no_trace_of_its_past() -> None:
    model = make_model()
    engine = make_engine(model, max_sessions=1)
    first = run_talks(engine, make_talks(1))[0]
    run_talks(engine, [Talk([[40] * 100], SamplingParams(max_new_tokens=50), seed=9)])
    again = run_talks(engine, make_talks(1))[0]
    assert (again.row, again.logprobs) == (first.row, first.logprobs)


def test_a_diverged_policy_does_not_poison_the_next_one() -> None:
    model = make_model()
    engine = make_engine(model, max_sessions=1)
    expected = run_talks(engine, make_talks(1))[0]
    good = {k: v.clone() for k, v in model.state_dict().items()}
    with torch.no_grad():
        model.model.norm.weight.fill_(float("nan"))
        model.model.layers[0].self_attn.v_proj.weight.fill_(float("nan"))
    engine.sync()
    session = engine.open()
    engine.submit(session, [1, 2, 3], SamplingParams(max_new_tokens=2), seed=0)
    with pytest.raises(FloatingPointError, match="diverged"):
        engine.step()
    engine.release(session)
    model.load_state_dict(good)
    engine.sync()
    again = run_talks(engine, make_talks(1))[0]
    assert (again.row, again.logprobs) == (expected.row, expected.logprobs)


@pytest.mark.parametrize("opening", [1, 15, 29, 31])
def test_max_length_ends_a_reply_and_is_never_exceeded(opening: int) -> None:
    model = make_model()
    engine = NativeEngine(model, max_sessions=2, max_length=32, stop_ids=())
    talks = run_talks(engine, [Talk([[5] * opening], SamplingParams(max_new_tokens=100), seed) for seed in range(2)])
    for talk in talks:
        assert len(talk.row) == 32
        assert not talk.replies[0].finished_by_stop
        assert largest_gap(model, talk) < 1e-4


def test_max_length_holds_over_turns_and_a_turn_without_room_is_refused() -> None:
    engine = NativeEngine(make_model(), max_sessions=1, max_length=32, stop_ids=())
    session = engine.open()
    engine.submit(session, [5] * 10, SamplingParams(max_new_tokens=10), seed=0)
    while not engine.step():
        pass
    with pytest.raises(ValueError, match="32 tokens and no reply; max_length is 32"):
        engine.submit(session, [5] * 12, SamplingParams(), seed=1)
    engine.submit(session, [5] * 11, SamplingParams(max_new_tokens=10), seed=1)
    assert [len(r.token_ids) for r in engine.step()] == [1]


def test_top_p_samples_the_nucleus_only_and_reports_its_renormalised_logprobs() -> None:
    model = make_model()
    talks = run_talks(make_engine(model), make_talks(10, temperature=0.7, top_p=0.6))
    for talk in talks:
        logprobs = forward_logprobs(model, talk.row, 0.7)
        for i, found in enumerate(talk.logprobs):
            if found is None:
                continue
            p, index = logprobs[i - 1].exp().sort(descending=True)
            kept = int((p.cumsum(0) < 0.6).sum()) + 1
            assert talk.row[i] in index[:kept].tolist()
            expected = logprobs[i - 1, talk.row[i]] - p[:kept].sum().log()
            assert found == pytest.approx(float(expected), abs=1e-4)


def test_sample_by_hand() -> None:
    logits = torch.tensor([[0.1, 0.2, 0.3, 0.4]]).log().repeat(6, 1)
    uniforms = torch.tensor([0.0, 0.0999, 0.1001, 0.5999, 0.6001, 1 - 2**-24])
    token, logprob = sample(logits, uniforms, np.ones(6, np.float32), np.ones(6, np.float32))
    assert token.tolist() == [0, 0, 1, 2, 3, 3]
    assert logprob.exp().tolist() == pytest.approx([0.1, 0.1, 0.2, 0.3, 0.4, 0.4])


def test_sample_with_top_p_temperature_and_greedy_rows_by_hand() -> None:
    logits = torch.tensor([[0.1, 0.2, 0.3, 0.4]]).log().repeat(4, 1)
    uniforms = torch.tensor([0.0, 0.999, 0.0, 0.0])
    temperature = np.array([1.0, 1.0, 0.5, 0.0], np.float32)
    token, logprob = sample(logits, uniforms, temperature, np.array([0.7, 0.3, 1.0, 0.5], np.float32))
    # 0.7 is reached by {3, 2}; 0.3 by {3} alone; temperature 0.5 squares: 0.01 / 0.30; greedy reports the full softmax
    assert token.tolist() == [2, 3, 0, 3]
    assert logprob.exp().tolist() == pytest.approx([3 / 7, 1.0, 1 / 30, 0.4], rel=1e-4)


def test_sample_never_draws_a_token_without_probability() -> None:
    logits = torch.full((1, 4), -torch.inf)
    logits[0, 1] = 0.0
    for u in (0.0, 0.5, 1 - 2**-24, 1.0):
        token, logprob = sample(logits, torch.tensor([u]), np.ones(1, np.float32), np.ones(1, np.float32))
        assert (token.item(), logprob.item()) == (1, 0.0)


@pytest.mark.parametrize("temperature", [0.7, 1.5])
def test_sampled_frequencies_follow_the_softmax(temperature: float) -> None:
    model = make_model(initializer_range=0.1)
    draws = 4000
    engine = NativeEngine(model, max_sessions=500, max_length=8, stop_ids=())
    prompt = [3, 1, 4]
    talks = run_talks(engine, [Talk([prompt], SamplingParams(temperature, max_new_tokens=1), seed) for seed in range(draws)])
    expected = draws * forward_logprobs(model, [*prompt, 0], temperature)[-1].exp().numpy()
    found = np.bincount([t.row[-1] for t in talks], minlength=VOCAB)
    chi2 = float(((found - expected) ** 2 / expected).sum())
    assert chi2 < 120  # 60 degrees of freedom: above 120 with probability 7e-6


def test_sync_takes_over_new_weights_and_only_then() -> None:
    model = make_model()
    engine = make_engine(model)
    before = run_talks(engine, make_talks(4))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    assert [t.row for t in run_talks(engine, make_talks(4))] == [t.row for t in before]  # a snapshot until told
    engine.sync()
    after = run_talks(engine, make_talks(4))
    assert max(largest_gap(model, t) for t in after) < 1e-4
    assert (
        max(abs(a - b) for t, u in zip(before, after, strict=True) for a, b in zip(t.logprobs, u.logprobs, strict=False) if a and b) > 1e-3
    )


def test_sync_is_refused_while_a_session_is_open() -> None:
    engine = make_engine(make_model())
    session = engine.open()
    with pytest.raises(RuntimeError, match="found 1 open"):
        engine.sync()
    engine.release(session)
    engine.sync()


def test_wrong_use_is_refused_and_changes_nothing() -> None:
    engine = make_engine(make_model(), max_sessions=1)
    session = engine.open()
    with pytest.raises(RuntimeError, match="all 1 sessions"):
        engine.open()
    for bad in ([], [VOCAB], [-1]):
        with pytest.raises(ValueError, match="at least one new token id from 0 to 60"):
            engine.submit(session, bad, SamplingParams(), seed=0)
    engine.submit(session, [1, 2], SamplingParams(max_new_tokens=3), seed=0)
    with pytest.raises(RuntimeError, match="still sampling"):
        engine.submit(session, [1], SamplingParams(), seed=0)
    engine.release(session)
    with pytest.raises(RuntimeError, match="not open"):
        engine.release(session)
    with pytest.raises(RuntimeError, match="not open"):
        engine.submit(session, [1], SamplingParams(), seed=0)
    assert engine.step() == []


def test_a_session_released_in_the_middle_of_a_reply_leaves_the_others_alone() -> None:
    model = make_model()
    expected = [t.row for t in run_talks(make_engine(model, max_sessions=3), make_talks(2))]
    engine, talks = make_engine(model, max_sessions=3), make_talks(2)
    doomed = engine.open()
    engine.submit(doomed, [9] * 30, SamplingParams(max_new_tokens=50), seed=77)
    engine.step()
    waiting = engine.open()
    engine.submit(waiting, [9] * 30, SamplingParams(max_new_tokens=50), seed=78)
    engine.release(doomed)
    engine.release(waiting)
    assert [t.row for t in run_talks(engine, talks)] == expected


def test_unsupported_models_are_refused() -> None:
    small = {"vocab_size": VOCAB, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 4}
    with pytest.raises(ValueError, match="found 'mistral'"):
        make_engine(MistralForCausalLM(MistralConfig(**small, num_key_value_heads=2)))
    with pytest.raises(ValueError, match="sliding-window"):
        make_engine(make_model(use_sliding_window=True, sliding_window=8, max_window_layers=0))
    with pytest.raises(ValueError, match="found 'dynamic'"):
        make_engine(make_model(rope_parameters={"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}))


def test_bfloat16_stays_close_to_a_bfloat16_forward_pass() -> None:
    model = make_model(initializer_range=0.1).to(torch.bfloat16)
    engine = make_engine(model)
    assert engine._decoder.dtype == torch.bfloat16
    for talk in run_talks(engine, make_talks(6)):
        assert largest_gap(model, talk) < 0.15


def test_cache_bytes() -> None:
    # layers x (k, v) x sessions x key heads x tokens x head_dim x 4 bytes
    assert make_engine(make_model(), max_sessions=3, max_length=64).cache_bytes == 2 * 2 * 3 * 2 * 64 * 8 * 4


def test_runs_cover_all_slots_with_short_gaps() -> None:
    assert _runs(np.array([0, 1, 2])) == [(0, 3)]
    assert _runs(np.array([0, 3, 7])) == [(0, 4), (7, 8)]
    assert _runs(np.arange(20)) == [(0, 16), (16, 20)]


def test_scripted_engine_follows_its_script_and_the_limits_of_a_real_one() -> None:
    engine = ScriptedEngine(lambda session, turn, context: [turn, len(context), 7, 50], stop_ids=STOP, max_sessions=1, max_length=12)
    session = engine.open()
    engine.submit(session, [1, 2, 3], SamplingParams(), seed=0)
    assert engine.step() == engine.step() == []
    assert engine.step() == [Generation(session, [0, 3, 7], [-0.5] * 3, True)]
    engine.submit(session, [4], SamplingParams(max_new_tokens=2), seed=0)
    assert engine.step() == []
    assert engine.step() == [Generation(session, [1, 7], [-0.5] * 2, True)]
    engine.submit(session, [4, 4], SamplingParams(), seed=0)
    assert engine.step() == [Generation(session, [2], [-0.5], False)]
    assert engine.contexts[session] == [1, 2, 3, 0, 3, 7, 4, 1, 7, 4, 4, 2]
    with pytest.raises(RuntimeError, match="1 open"):
        engine.sync()
    engine.release(session)
    assert engine.opened == set()
