"""Training rows as tensors, and the log-probs of their sampled tokens."""

from __future__ import annotations

import weakref
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode
from trainer_factory import make_model
from transformers import GPT2Config, GPT2LMHeadModel

from agentgym_lite.rollout.types import EpisodeSpec, StopReason, TokenRow, Trajectory
from agentgym_lite.training.batch import Batch
from agentgym_lite.training.logprobs import CHUNK_LOGITS, token_stats


def row(*parts: tuple[str, list[int]]) -> TokenRow:
    """``("c", ids)`` adds context, ``("a", ids)`` sampled tokens with log-probs -0.1, -0.2, ..."""
    out = TokenRow()
    for turn, (kind, ids) in enumerate(parts):
        if kind == "c":
            out.append_context(ids, turn)
        else:
            out.append_action(ids, [-0.1 * (i + 1) for i in range(len(ids))], turn)
    return out


def episode(*rows: TokenRow, stop: StopReason = StopReason.SUCCESS) -> Trajectory:
    return Trajectory(EpisodeSpec("echo", "echo_0"), rows=list(rows), stop_reason=stop)


def test_position_t_holds_the_quantities_of_token_t_plus_1() -> None:
    batch = Batch.from_trajectories([episode(row(("c", [5, 6]), ("a", [7, 8]), ("c", [9]), ("a", [10]), ("c", [11])))], [2.0])
    assert batch.input_ids.tolist() == [[5, 6, 7, 8, 9, 10]]
    assert batch.targets.tolist() == [[6, 7, 8, 9, 10, 11]]
    assert batch.mask.tolist() == [[0, 1, 1, 0, 1, 0]]
    assert batch.advantages.tolist() == [[0, 2, 2, 0, 2, 0]]
    torch.testing.assert_close(batch.engine_logprobs, torch.tensor([[0.0, -0.1, -0.2, 0.0, -0.1, 0.0]]))
    assert batch.lengths.tolist() == [6]


def test_padding_is_on_the_right_and_forked_rows_share_the_advantage() -> None:
    long, short = row(("c", [5, 6, 7]), ("a", [8])), row(("c", [5]), ("a", [9]))
    batch = Batch.from_trajectories([episode(long, short)], [-1.0])
    assert batch.input_ids.tolist() == [[5, 6, 7], [5, 0, 0]]
    assert batch.advantages.tolist() == [[0, 0, -1], [-1, 0, 0]]


def test_what_cannot_be_trained_on_is_left_out() -> None:
    good = episode(row(("c", [1]), ("a", [2])))
    spoiled = episode(row(("c", [1]), ("a", [3])), stop=StopReason.ENV_ERROR)
    silent = episode(row(("c", [1, 4])), stop=StopReason.CONTEXT_FULL)
    batch = Batch.from_trajectories([spoiled, good, silent], [9.0, 1.0, 9.0])
    assert batch.targets.tolist() == [[2]]
    assert batch.advantages.tolist() == [[1.0]]


def test_no_episode_gives_an_empty_batch() -> None:
    assert len(Batch.from_trajectories([], [])) == 0


def test_faulty_input_is_refused() -> None:
    with pytest.raises(ValueError, match="1 trajectories and 2 advantages"):
        Batch.from_trajectories([episode(row(("c", [1]), ("a", [2])))], [1.0, 2.0])
    with pytest.raises(ValueError, match="begins with a sampled token"):
        Batch.from_trajectories([episode(row(("a", [1, 2])))], [1.0])


def test_selecting_rows_crops_to_the_longest_of_them() -> None:
    batch = Batch.from_trajectories([episode(row(("c", [1] * n), ("a", [2]))) for n in (5, 2, 3)], [1.0, 2.0, 3.0])
    part = batch.select([2, 1])
    assert part.input_ids.shape == (2, 3)
    assert part.lengths.tolist() == [3, 2]
    assert part.advantages.sum(1).tolist() == [3.0, 2.0]


@given(st.lists(st.integers(1, 30), min_size=1, max_size=20), st.integers(1, 80))
@settings(max_examples=60, deadline=None)
def test_micro_batches_hold_every_row_once_and_stay_in_bounds(lengths: list[int], tokens: int) -> None:
    batch = Batch.from_trajectories([episode(row(("c", [1] * n), ("a", [2]))) for n in lengths], [1.0] * len(lengths))
    parts = batch.micro_batches(tokens)
    assert sorted(i for p in parts for i in p) == list(range(len(lengths)))
    for p in parts:
        assert len(p) == 1 or len(p) * max(lengths[i] for i in p) <= tokens
    if tokens >= sum(lengths) * max(lengths):
        assert len(parts) == 1


# -- log-probs ---------------------------------------------------------------------------------------------------------------------------


def gpt2() -> Any:
    """Absolute positions, where a shifted position shows at once."""
    torch.manual_seed(0)
    return GPT2LMHeadModel(GPT2Config(vocab_size=15, n_positions=64, n_embd=16, n_layer=2, n_head=2)).eval()


def mixed_batch() -> Batch:
    rows = [
        row(("c", [3, 4]), ("a", [5, 6]), ("c", [7, 8, 9]), ("a", [10, 11, 12])),
        row(("c", [3]), ("a", [14])),
        row(("c", [3, 4, 8, 8, 2]), ("a", [5, 1])),
    ]
    return Batch.from_trajectories([episode(r) for r in rows], [1.0, -1.0, 0.5])


def stats(model: Any, batch: Batch, temperature: float = 1.0, **options: Any) -> Any:
    return token_stats(model, batch.input_ids, batch.targets, batch.mask, temperature=temperature, **options)


@pytest.mark.parametrize("temperature", [0.7, 1.0])
def test_logprobs_and_entropy_equal_a_plain_forward_pass(temperature: float) -> None:
    model, batch = make_model().eval(), mixed_batch()
    got = stats(model, batch, temperature)
    for i in range(len(batch)):
        n = int(batch.lengths[i])
        logits = model(input_ids=batch.input_ids[i : i + 1, :n]).logits[0] / temperature
        logp = logits.log_softmax(-1)
        want = logp.gather(-1, batch.targets[i, :n, None])[:, 0] * batch.mask[i, :n]
        entropy = torch.distributions.Categorical(logits=logits).entropy() * batch.mask[i, :n]
        torch.testing.assert_close(got.logprobs[i, :n], want, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(got.entropy[i, :n], entropy, atol=1e-5, rtol=1e-5)
        assert got.logprobs[i, n:].abs().sum() == 0


@pytest.mark.parametrize("make", [make_model, gpt2])
def test_padding_its_ids_and_batch_order_change_nothing(make: Any) -> None:
    """T10, for rotary and for absolute positions."""
    model, batch = make().eval(), mixed_batch()
    base = stats(model, batch).logprobs
    order = [2, 0, 1]
    moved = stats(model, batch.select(order)).logprobs
    torch.testing.assert_close(moved, base[order], atol=1e-6, rtol=1e-5)
    padding = torch.arange(base.shape[1])[None] >= batch.lengths[:, None]
    noisy = torch.where(padding, 13, batch.input_ids)
    got = token_stats(model, noisy, batch.targets, batch.mask, temperature=1.0).logprobs
    assert torch.equal(got, base)
    for i in range(len(batch)):
        alone = stats(model, batch.select([i])).logprobs[0]
        torch.testing.assert_close(alone, base[i, : len(alone)], atol=1e-6, rtol=1e-5)


def test_chunks_give_the_same_values_and_gradients() -> None:
    model, batch = make_model().eval(), mixed_batch()
    results = []
    for chunk in (2**25, 15 * 3, 1):
        model.zero_grad()
        got = stats(model, batch, chunk_logits=chunk)
        (got.logprobs.sum() - 0.3 * got.entropy.sum()).backward()
        results.append((got.logprobs.detach(), got.entropy.detach(), torch.cat([p.grad.flatten() for p in model.parameters()])))
    for other in results[1:]:
        for a, b in zip(results[0], other, strict=True):
            torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4)


class PeakMemory(TorchDispatchMode):
    """Bytes of the tensors made inside it that are alive at one time, at most."""

    def __init__(self) -> None:
        super().__init__()
        self.now, self.peak = 0, 0
        self._alive: dict[int, weakref.ref[Any]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for x in out if isinstance(out, tuple | list) else (out,):
            if isinstance(x, torch.Tensor):
                self._watch(x.untyped_storage())
        return out

    def _watch(self, storage: torch.UntypedStorage) -> None:
        key, size = storage._cdata, storage.nbytes()
        if key not in self._alive:
            self.now += size
            self.peak = max(self.peak, self.now)
            self._alive[key] = weakref.ref(storage, lambda _: self._free(key, size))

    def _free(self, key: int, size: int) -> None:
        self.now -= size
        del self._alive[key]


class _WideHead(torch.nn.Module):
    """Hidden states straight from the embedding, so that the logits are all that takes memory."""

    def __init__(self, vocabulary: int, width: int) -> None:
        super().__init__()
        self.embed, self.head = torch.nn.Embedding(99, width), torch.nn.Linear(width, vocabulary, bias=False)

    def get_decoder(self) -> Any:
        return lambda input_ids, use_cache: SimpleNamespace(last_hidden_state=self.embed(input_ids))

    def get_output_embeddings(self) -> torch.nn.Module:
        return self.head


@pytest.mark.parametrize("entropy_grad", [False, True])
def test_the_loss_needs_a_third_of_the_memory_at_a_large_vocabulary(entropy_grad: bool) -> None:
    """T11: chunks in the proportion of 2,048 tokens at the default; value and gradient as from full logits."""
    vocabulary, tokens = 151_665, 64
    torch.manual_seed(0)
    model = _WideHead(vocabulary, 8)
    ids, targets, mask = torch.randint(99, (2, 32)), torch.randint(vocabulary, (2, 32)), torch.ones(2, 32)

    def full() -> tuple[torch.Tensor, torch.Tensor]:
        logits = model.head(model.embed(ids)) / 0.9
        chosen = logits.log_softmax(-1).gather(-1, targets[..., None])[..., 0]
        with torch.set_grad_enabled(entropy_grad):
            logp = logits.log_softmax(-1)
            return chosen, -(logp.exp() * logp).sum(-1)

    def chunked() -> tuple[torch.Tensor, torch.Tensor]:
        rows = CHUNK_LOGITS // vocabulary * tokens // 2048
        got = token_stats(model, ids, targets, mask, temperature=0.9, entropy_grad=entropy_grad, chunk_logits=rows * vocabulary)
        return got.logprobs, got.entropy

    results, peaks = [], []
    for path in (full, chunked):
        model.zero_grad()
        with PeakMemory() as memory:
            logp, entropy = path()
            (logp.sum() - 0.3 * entropy.sum()).backward()
        peaks.append(memory.peak)
        results.append((logp.detach(), entropy.detach(), *(p.grad for p in model.parameters())))
    assert peaks[0] > 3 * vocabulary * tokens * 4  # the plain path keeps logits and their gradients
    assert peaks[1] <= peaks[0] / 3
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b, atol=1e-4, rtol=1e-4)


def test_the_head_sees_only_positions_that_predict_sampled_tokens() -> None:
    model, batch, seen = make_model().eval(), mixed_batch(), []
    model.lm_head.register_forward_hook(lambda module, inputs, output: seen.append(len(inputs[0])))
    stats(model, batch)
    assert sum(seen) == int(batch.mask.sum()) == 8


def test_masked_targets_are_never_read() -> None:
    """T2: whatever stands behind the mask, values and gradients are bitwise the same."""
    model, batch = make_model().eval(), mixed_batch()
    results = []
    for targets in (batch.targets, torch.where(batch.mask.bool(), batch.targets, 10**6)):
        model.zero_grad()
        got = token_stats(model, batch.input_ids, targets, batch.mask, temperature=1.0)
        got.logprobs.sum().backward()
        results.append((got.logprobs.detach(), model.model.embed_tokens.weight.grad.clone()))
    assert torch.equal(results[0][0], results[1][0])
    assert torch.equal(results[0][1], results[1][1])


def test_entropy_carries_a_gradient_only_if_asked() -> None:
    model, batch = make_model().eval(), mixed_batch()
    assert stats(model, batch).entropy.requires_grad
    assert not stats(model, batch, entropy_grad=False).entropy.requires_grad
    assert stats(model, batch, entropy_grad=False).logprobs.requires_grad
