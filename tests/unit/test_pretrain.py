"""The corpus keeps held-out items out, the tokenizer survives saving, the circuits attend where they should, and training runs."""

import json
import random

import pytest
import torch
from transformers import AutoTokenizer, Qwen2Config

from agentgym_envs.babyai import BabyAI
from agentgym_envs.textcraft import TextCraft
from agentgym_envs.textcraft.recipes import Recipes
from agentgym_lite.agents import ChatRenderer, ReAct
from agentgym_lite.training.pretrain import corpus
from agentgym_lite.training.pretrain.corpus import Mixture
from agentgym_lite.training.pretrain.tokenizer import SPECIAL, train_tokenizer
from agentgym_lite.training.pretrain.train import CONTEXT_WEIGHT, Phase, PretrainConfig, encode, loss_of, new_model, pretrain

EVEN = Mixture(lookup=1, invented=1, real=1, babyai=1, careless=0.3)


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(700, documents=60)


def test_documents_alternate_and_repeat_by_seed():
    docs = [corpus.document(random.Random(seed), EVEN) for seed in range(40)]
    assert docs == [corpus.document(random.Random(seed), EVEN) for seed in range(40)]
    for doc in docs:
        roles = [m["role"] for m in doc]
        assert roles[:2] == ["system", "user"]
        assert roles[2:] == ["assistant", "user"] * ((len(roles) - 2) // 2) + ["assistant"]


def test_every_reply_of_an_episode_is_readable():
    rng = random.Random(0)
    for make in (corpus.invented_episode, corpus.real_episode, corpus.babyai_episode):
        for _ in range(8):
            replies = [m["content"] for m in make(rng, EVEN) if m["role"] == "assistant"]
            assert all(ReAct().parse(reply).error is None for reply in replies)


def test_evaluation_goals_are_never_goals():
    held_out = {goal.name for goal in Recipes.default().goals if goal.split == "eval"}
    assert len(held_out) == 100
    rng = random.Random(1)
    goals = {corpus.real_episode(rng, EVEN)[1]["content"].rpartition("Goal: craft ")[2].removesuffix(".") for _ in range(300)}
    assert len(goals) > 100
    assert not goals & held_out


def test_layouts_of_a_split_are_left_out(monkeypatch):
    item = BabyAI.items("eval")[3]  # level 4, which has few layouts
    start = BabyAI().start(item)
    monkeypatch.setattr(corpus, "FIRST_LAYOUT", 45)
    seen = []
    monkeypatch.setattr(corpus, "_play", lambda env, chosen, rng, mixture: seen.append(env.start(chosen)))

    class Chooser(random.Random):
        first = True

        def randrange(self, *args):  # the first draw is the held-out layout itself
            if self.first:
                self.first = False
                return 0
            return super().randrange(*args)

        def choice(self, options):
            return BabyAI.level_of(item)[0]

    corpus.babyai_episode(Chooser(0), EVEN)
    assert len(seen) == 1
    assert seen[0] != start


def test_careful_and_careless_players_differ():
    def share_done(careless):
        mixture = Mixture(lookup=0, invented=0, real=1, babyai=0, careless=careless, skill=(1.0, 1.0))
        rng, env, done = random.Random(2), TextCraft(), 0
        for _ in range(30):
            item = rng.choice(env.items("train")[:90])  # depth 1
            replies = [m["content"] for m in corpus._play(env, item, rng, mixture) if m["role"] == "assistant"]
            env.reset(item)
            done += any(env.step(ReAct().parse(reply).action).done for reply in replies)
        return done / 30

    assert share_done(0.0) == 1.0
    assert share_done(1.0) < 0.3


def test_tokenizer_is_the_same_after_saving_beside_a_qwen2_config(tokenizer, tmp_path):
    text = "Thought: need 12, 4 each: 3 times.\nAction: get 3 oak log<|im_end|>\n<|im_start|>user\nNaïve – 字"
    tokenizer.save_pretrained(tmp_path)
    Qwen2Config().save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    assert loaded.encode(text) == tokenizer.encode(text)
    assert loaded.decode(loaded.encode(text)) == text
    assert loaded.convert_tokens_to_ids(list(SPECIAL)) == [0, 1, 2]
    assert (loaded.eos_token, loaded.pad_token, loaded.chat_template) == ("<|im_end|>", "<|endoftext|>", tokenizer.chat_template)


def test_ids_are_those_of_the_chat_template_and_weights_mark_replies(tokenizer):
    doc = corpus.lookup_document(random.Random(3), EVEN)
    ids, weights = encode(ChatRenderer(tokenizer), doc)
    text = tokenizer.apply_chat_template(doc, tokenize=False).removesuffix("\n")
    assert ids == tokenizer.encode(text)
    assert set(weights) == {CONTEXT_WEIGHT, 1.0}
    replies = tokenizer.decode([i for i, w in zip(ids, weights, strict=True) if w == 1.0])
    assert replies == "".join(m["content"] + "<|im_end|>" for m in doc if m["role"] == "assistant")


@pytest.mark.parametrize("circuits", [True, False])
def test_copy_circuits_attend_to_the_previous_token_and_to_what_followed(circuits):
    model = new_model(PretrainConfig(copy_circuits=circuits), 512).eval()
    model.config._attn_implementation = "eager"
    half = torch.randperm(512, generator=torch.Generator().manual_seed(0))[:40]
    with torch.no_grad():
        attention = model.model(torch.cat([half, half])[None], output_attentions=True).attentions
    t = torch.arange(1, 80)
    previous = attention[0][0, :, t, t - 1].mean(1)  # (heads,)
    t = torch.arange(41, 80)
    followed = attention[1][0, :, t, t - 39].mean()  # at its second occurrence, the token after the first
    assert (previous[0] > 0.9) == circuits
    assert (followed > 0.15) == circuits


def test_padding_has_no_weight(tokenizer):
    model = new_model(PretrainConfig(), len(tokenizer))
    ids = torch.tensor([[5, 6, 7, 8]])
    weights = torch.tensor([[0.1, 0.1, 1.0, 1.0]])
    padded = torch.cat([ids, torch.zeros(1, 3, dtype=torch.long)], 1), torch.cat([weights, torch.zeros(1, 3)], 1)
    with torch.no_grad():
        assert torch.allclose(loss_of(model, ids, weights)[0], loss_of(model, *padded)[0], atol=1e-3)


def test_pretraining_lowers_the_loss_and_saves(tmp_path):
    phase = Phase(1.0, Mixture(lookup=1, invented=0, real=0, babyai=0))
    sizes = {"vocab_size": 600, "tokenizer_documents": 50, "hidden_size": 64, "intermediate_size": 64, "heads": 2, "kv_heads": 1}
    config = PretrainConfig(**sizes, phases=(phase,), batch_tokens=512)
    pretrain(config, tmp_path / "one", stop_after=0.06)
    pretrain(config, tmp_path, start=tmp_path / "one", stop_after=0.03)
    curve = json.loads((tmp_path / "one" / "pretrain.json").read_text())["reply_loss"]
    assert curve[-1][1] < 5.5  # ln(600) is 6.4
    assert AutoTokenizer.from_pretrained(tmp_path).eos_token == "<|im_end|>"
