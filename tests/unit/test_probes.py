"""The probes: what they pay, that every algorithm passes those it should, and that a broken part fails the probe that isolates it."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor

from agentgym_envs import core
from agentgym_lite.agents import ExpertPolicy, RandomPolicy, ReAct
from agentgym_lite.algorithms import ALGORITHMS, Credit, Samples, registry
from agentgym_lite.config.algorithms import GiGPOConfig, GRPOConfig, PPOConfig
from agentgym_lite.probes import PROBES, Probe, ProbeRun, probe_model, probe_tokenizer, register_probes, run_probe
from agentgym_lite.probes.env import ACTIONS, ActionProbe, TurnCreditProbe, ValueProbe
from agentgym_lite.probes.run import prompts, read_policy
from agentgym_lite.training.critic import Critic


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentgym_envs.core._REGISTRY", {})
    register_probes()


# -- the environments --------------------------------------------------------------------------------------------------


def play(probe: type[Probe], item: int, moves: tuple[str, ...]) -> tuple[list[str], list[float], bool]:
    """Observations before each action, rewards, success."""
    env = probe()
    shown, rewards, success = [env.reset(item).text], [], False
    for move in moves:
        result = env.step(move)
        shown.append(result.observation.text)
        rewards.append(result.reward)
        success = bool(result.info["success"])
    return shown[:-1], rewards, success


@pytest.mark.parametrize(
    ("name", "item", "moves", "shown", "rewards"),
    [
        ("probe_value", 0, "L", ["start"], [1.0]),
        ("probe_value", 1, "R", ["start"], [1.0]),
        ("probe_observation", 0, "R", ["sun"], [1.0]),
        ("probe_observation", 1, "R", ["rain"], [0.5]),
        ("probe_delay", 0, "RL", ["first", "second"], [0.0, 1.0]),
        ("probe_action", 0, "L", ["start"], [1.0]),
        ("probe_action", 0, "R", ["start"], [0.0]),
        ("probe_both", 0, "L", ["red"], [1.0]),
        ("probe_both", 1, "L", ["blue"], [0.0]),
        ("probe_both", 1, "R", ["blue"], [1.0]),
        ("probe_credit", 0, "RLRR", ["wait", "key", "open", "open"], [0.0, 0.0, 0.0, 1.0]),
        ("probe_credit", 0, "LRLL", ["wait", "key", "shut", "shut"], [0.0, 0.0, 0.0, 0.0]),
    ],
)
def test_what_is_shown_and_paid(name: str, item: int, moves: str, shown: list[str], rewards: list[float]) -> None:
    found = play(PROBES[name], item, tuple({"L": "left", "R": "right"}[m] for m in moves))
    assert found == (shown, rewards, sum(rewards) > 0)


def test_probes_are_not_registered_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentgym_envs.core._REGISTRY", {})
    assert core.names() == []
    register_probes()
    assert core.names() == sorted(PROBES)
    assert all(core.environment_class(name) is cls for name, cls in PROBES.items())


@pytest.mark.parametrize("name", sorted(PROBES))
def test_the_expert_succeeds_on_every_item_and_the_random_agent_speaks_the_language(name: str) -> None:
    for item in [*PROBES[name].items("train"), *PROBES[name].items("eval")]:
        env = core.make(name)
        observation, policy = env.reset(item), ExpertPolicy(name)
        policy.reset(observation, env.render)
        done, success = False, False
        while not done:
            result = env.step(str(ReAct().parse(policy.act(observation)).action))
            observation, done, success = result.observation, result.done, bool(result.info["success"])
        assert success
    random = RandomPolicy(name, 1)
    replies = [random.act(core.Observation("")) for _ in range(50)]
    assert {ReAct().parse(r).action for r in replies} == set(ACTIONS)


# -- the policy --------------------------------------------------------------------------------------------------------


def test_every_word_has_a_token_and_every_reply_is_one() -> None:
    tokenizer = probe_tokenizer()
    for cls in PROBES.values():
        for ids in prompts(cls).values():
            assert tokenizer.unk_token_id not in ids
    assert all(len(tokenizer.encode(f"Action: {a}")) == 1 for a in ACTIONS)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_an_untrained_policy_speaks_but_does_not_know_what_to_choose(seed: int) -> None:
    model, tokenizer = probe_model(seed), probe_tokenizer()
    actions = [tokenizer.convert_tokens_to_ids(f"Action: {a}") for a in ACTIONS]
    for cls in PROBES.values():
        for ids in prompts(cls).values():
            with torch.no_grad():
                after_prompt = model(torch.tensor([ids])).logits[0, -1].softmax(-1)
                after_reply = model(torch.tensor([[*ids, actions[0]]])).logits[0, -1].softmax(-1)
            assert after_prompt[actions].sum() > 0.97
            assert after_prompt[actions].min() > 0.05
            assert after_reply[tokenizer.eos_token_id] > 0.97


def test_models_depend_on_the_seed_alone() -> None:
    state = torch.get_rng_state()
    a, b, c = probe_model(0), probe_model(0), probe_model(1)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(x, y) for x, y in zip(a.parameters(), b.parameters(), strict=True))
    assert read_policy(ActionProbe, a) != read_policy(ActionProbe, c)


# -- credit ------------------------------------------------------------------------------------------------------------


def credit_samples(values: dict[str, float] | None = None) -> Samples:
    """All 16 episodes of the credit probe as one group, one token per turn."""
    episodes = [play(TurnCreditProbe, 0, moves) for moves in product(ACTIONS, repeat=4)]
    words = ["wait", "key", "open", "shut"]
    shown = torch.tensor([[words.index(w) for w in e[0]] for e in episodes])
    n = len(episodes)
    return Samples(
        mask=torch.ones(n, 4),
        rewards=torch.tensor([e[1] for e in episodes]),
        penalty=torch.zeros(n, 4),
        turns=torch.arange(4).expand(n, 4),
        anchors=shown,
        episodes=torch.arange(n),
        groups=torch.zeros(n, dtype=torch.long),
        lengths=torch.full((n,), 4),
        values=None if values is None else torch.tensor([values[w] for w in words])[shown],
    )


def share_per_turn(advantages: Tensor) -> list[float]:
    total = advantages.abs().sum()
    return [round(float(x), 3) for x in advantages.abs().sum(0) / total]


def test_an_advantage_per_episode_blames_all_turns_alike() -> None:
    assert share_per_turn(ALGORITHMS["grpo"].credit(credit_samples(), GRPOConfig()).advantages) == [0.25, 0.25, 0.25, 0.25]


def test_values_at_turn_ends_find_the_turn_that_matters() -> None:
    """Half of all episodes succeed, and from the third turn on the observation says which."""
    samples = credit_samples({"wait": 0.5, "key": 0.5, "open": 1.0, "shut": 0.0})
    config = PPOConfig(kl_coef=0.0, kl_in="reward", credit="turn", lam=0.0, whiten=False)
    advantages = ALGORITHMS["ppo"].credit(samples, config).advantages
    assert share_per_turn(advantages) == [0.0, 1.0, 0.0, 0.0]
    assert advantages[:, 1].unique().tolist() == [-0.5, 0.5]


def test_step_groups_leave_the_turns_behind_the_key_to_the_episode() -> None:
    """A_E = +-0.968 everywhere (std 0.516); A_S is as much at wait and key, and 0 behind, where the returns of a step group are equal."""
    config = GiGPOConfig(gamma=1.0)
    advantages = ALGORITHMS["gigpo"].credit(credit_samples(), config).advantages
    assert share_per_turn(advantages) == [0.333, 0.333, 0.167, 0.167]


# -- every algorithm passes --------------------------------------------------------------------------------------------

#: Algorithm settings by a short name; the critic of the probes learns as fast as its policy.
PPO = {"name": "ppo", "critic_lr": 1e-2}
LEARNERS: dict[str, dict[str, Any]] = {
    **{name: {"name": name} for name in ("grpo", "rloo", "reinforce_pp", "reinforce_pp_baseline", "gigpo")},
    "ppo": PPO,
    "ppo, turns": {**PPO, "credit": "turn"},
    "ppo, one backbone": {**PPO, "critic": "head"},
}
CRITICS = {"tokens": {**PPO, "gamma": 0.7, "whiten": False}, "turns": {**PPO, "gamma": 0.7, "whiten": False, "credit": "turn"}}


def quick(probe: str, algorithm: dict[str, Any], **options: Any) -> ProbeRun:
    return run_probe(probe, algorithm, **{"steps": 25, "groups": 4, **options})


def test_the_table_names_every_algorithm() -> None:
    assert {settings["name"] for settings in LEARNERS.values()} == set(ALGORITHMS)


@pytest.mark.learning
@pytest.mark.parametrize("probe", ["probe_action", "probe_both", "probe_credit"])
@pytest.mark.parametrize("learner", sorted(LEARNERS))
def test_policies_pass(learner: str, probe: str) -> None:
    assert quick(probe, LEARNERS[learner]).complaints() == []


@pytest.mark.learning
@pytest.mark.parametrize("probe", ["probe_value", "probe_observation", "probe_delay"])
@pytest.mark.parametrize("critic", sorted(CRITICS))
def test_critics_pass(critic: str, probe: str) -> None:
    assert quick(probe, CRITICS[critic], steps=40).complaints() == []


@pytest.mark.parametrize("learner", ["grpo", "rloo", "reinforce_pp", "reinforce_pp_baseline", "gigpo"])
def test_without_a_critic_constant_reward_teaches_nothing(learner: str) -> None:
    run = quick("probe_value", LEARNERS[learner], steps=2)
    assert [m["optim/updates"] for m in run.history] == [0.0, 0.0]


# -- a broken part fails its probe, and only that ----------------------------------------------------------------------


def fails(run: ProbeRun, word: str) -> None:
    complaints = run.complaints()
    assert any(f"'{word}'" in c and PROBES[run.probe].isolates in c for c in complaints), complaints


@pytest.mark.learning
def test_a_frozen_critic_fails_the_value_probe() -> None:
    frozen = {**CRITICS["turns"], "critic_lr": 1e-12}
    fails(quick("probe_value", frozen), "start")
    assert quick("probe_action", frozen).complaints() == []


@pytest.mark.learning
def test_a_dropped_reward_fails_the_action_probe() -> None:
    fails(quick("probe_action", LEARNERS["grpo"], reward_fn=lambda t: 0.0), "start")


@pytest.mark.learning
def test_an_advantage_of_the_wrong_sign_fails_the_action_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    original = registry.grpo_advantages
    monkeypatch.setattr(registry, "grpo_advantages", lambda r, g, **kw: original(-r, g, **kw))
    fails(quick("probe_action", LEARNERS["grpo"]), "start")


@pytest.mark.learning
def test_rows_that_got_each_others_rewards_fail_the_probe_of_both(monkeypatch: pytest.MonkeyPatch) -> None:
    """The credit of one episode goes to the next one of the step: the choice that is the same everywhere still averages out right."""
    original = registry.ALGORITHMS["rloo"].credit
    swapped = registry.Algorithm(lambda s, c: Credit(original(s, c).advantages.roll(1, 0)))
    monkeypatch.setitem(registry.ALGORITHMS, "rloo", swapped)
    assert quick("probe_both", LEARNERS["rloo"]).complaints() != []


@pytest.mark.learning
def test_values_of_the_wrong_position_fail_the_observation_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read at the first token of the row, before any observation, the critic cannot tell sun from rain."""
    original = Critic.forward
    monkeypatch.setattr(Critic, "forward", lambda self, ids, hidden: original(self, ids, hidden)[:, :1].expand(ids.shape))
    assert len(quick("probe_observation", CRITICS["turns"], steps=40).complaints()) >= 1
    assert quick("probe_value", CRITICS["turns"], steps=40).complaints() == []


@pytest.mark.learning
def test_a_discount_that_is_ignored_fails_the_delay_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    original = registry.turn_gae
    monkeypatch.setattr(registry, "turn_gae", lambda *x, gamma, lam: original(*x, gamma=1.0, lam=lam))
    fails(quick("probe_delay", CRITICS["turns"], steps=40), "first")
    assert quick("probe_value", CRITICS["turns"]).complaints() == []


def test_complaints_name_the_part() -> None:
    run = quick("probe_value", CRITICS["turns"], steps=1)
    assert run.complaints() == [
        f"probe_value: expected value 1.00 at 'start', found {run.values['start']:.2f}; look at {ValueProbe.isolates}"
    ]
