"""A run folder such as ``agl demo`` writes, made without a model: random and expert agents stand in for the policy before and after."""

from __future__ import annotations

import json
import math
import random
import re
from pathlib import Path

from agentgym_envs import make
from agentgym_envs.agents import expert, random_agent
from agentgym_lite.rollout.types import EpisodeSpec, StopReason, TokenRow, Trajectory, Turn
from agentgym_lite.viewer import ReplayRef, ReportData, Score, TaskRow


class WordTokenizer:
    """One id for each word, space or mark, given out as they come."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.ids: dict[str, int] = {}

    def encode(self, text: str) -> list[int]:
        pieces = re.findall(r"<\|\w+\|>|\s?\w+|\s|[^\w\s]", text)
        return [self.ids.setdefault(p, len(self.ids)) for p in pieces]

    def decode(self, token_id: int) -> str:
        return list(self.ids)[token_id]


def play(env_name: str, item_id: str, agent, tokenizer: WordTokenizer, max_rounds: int = 10) -> Trajectory:
    """One episode with made-up log-probs."""
    env, rng = make(env_name), random.Random(item_id)
    row, turns, reason = TokenRow(), [], StopReason.MAX_ROUNDS
    observation = env.reset(item_id)
    agent.reset(observation, env.render)
    row.append_context(tokenizer.encode(f"<|im_start|>system\n{env.instructions}<|im_end|>\n"), -1)
    for k in range(max_rounds):
        row.append_context(tokenizer.encode(f"<|im_start|>user\n{observation.text}<|im_end|>\n<|im_start|>assistant\n"), k)
        decision = agent.act(observation)
        reply = f"Thought: {decision.thought}\nAction: {decision.action}"
        ids = tokenizer.encode(reply + "<|im_end|>")
        start = len(row)
        row.append_action(ids, [math.log(rng.betavariate(4, 0.5) * 0.98 + 0.01) for _ in ids], k)
        result = env.step(decision.action)
        turns.append(Turn(observation.text, reply, decision.action, result.reward, bool(result.info["invalid"]), start=start, end=len(row)))
        observation = result.observation
        if result.done:
            reason = StopReason.SUCCESS if result.info["success"] else StopReason.FAILURE
            break
    return Trajectory(EpisodeSpec(env_name, item_id), [row], turns, reason, env.task_of(item_id), env.version, max_rounds, observation.text)


def metrics(steps: int = 60) -> list[dict[str, float]]:
    """Curves that rise, with a jump of the limit on rounds at each third of the run."""
    rng = random.Random(0)
    lines = []
    for step in range(1, steps + 1):
        share, stage = step / steps, min(2, 3 * (step - 1) // steps)
        babyai = min(1.0, max(0.0, 0.35 + 0.55 * (1 - math.exp(-3 * share)) + rng.gauss(0, 0.06)))
        textcraft = min(1.0, max(0.0, 0.2 + 0.4 * share + rng.gauss(0, 0.08)))
        line = {"step": step, "reward/mean": (babyai + textcraft) / 2, "policy/entropy": 0.8 * math.exp(-share) + rng.gauss(0, 0.02)}
        line |= {
            "policy/kl": 0.05 * share + abs(rng.gauss(0, 0.003)),
            "rate/invalid_action": 0.25 * math.exp(-2 * share) + 0.02 * rng.random(),
        }
        for env, success, limits in (("babyai", babyai, (6, 10, 14)), ("textcraft", textcraft, (8, 12, 20))):
            line |= {
                f"env/{env}/success": success,
                f"env/{env}/max_rounds": limits[stage],
                f"env/{env}/rounds_mean": limits[stage] * (1 - success / 2),
            }
        lines.append(line)
    return lines


def results() -> list[TaskRow]:
    """Counts that are different in every cell."""

    def row(env: str, task: str, n: int, random_: int, base: int, trained: int) -> TaskRow:
        scores = [Score(n=n, successes=s) for s in (random_, base, trained, n)]
        return TaskRow(env=env, task=task, random=scores[0], base=scores[1], trained=scores[2], expert=scores[3])

    return [
        row("babyai", "goto", 60, 11, 24, 57),
        row("babyai", "pickup", 40, 3, 9, 26),
        row("textcraft", "depth_1", 31, 1, 15, 28),
        row("textcraft", "depth_2", 41, 0, 5, 19),
        row("textcraft", "depth_3", 25, 0, 0, 4),
    ]


def write_run(out: Path, replays: str = "babyai") -> tuple[Path, WordTokenizer]:
    """Write ``report.json``, ``metrics.jsonl`` and ``trajectories.jsonl`` to ``out``."""
    tokenizer = WordTokenizer()
    item = make(replays).items("eval")[5]
    episodes = [play(replays, item, random_agent(replays, 1), tokenizer), play(replays, item, expert(replays), tokenizer)]
    data = ReportData(
        title="A tiny agent learns TextCraft and BabyAI",
        command="agl demo --out runs/demo --seed 0",
        reproduce=["git clone https://example.org/agentgym-lite && cd agentgym-lite", "make demo"],
        results=results(),
        replays=[ReplayRef(when="before", line=0), ReplayRef(when="after", line=1)],
        settings={"model": {"path": "tiny"}, "envs": [{"name": "babyai", "rounds": {"type": "scaling_inter", "rounds": [6, 10, 14]}}]},
        versions={"agentgym-lite": "0.1.0", "python": "3.11.2", "torch": "2.13.0"},
        times_s={"evaluate base": 41.2, "train": 288.4, "evaluate trained": 38.7},
        hardware="2 CPU cores, 4 GiB memory",
        notes=["TextCraft is trained as far as five minutes go; a longer run is recorded in the documentation."],
    )
    out.mkdir(parents=True, exist_ok=True)
    (out / "report.json").write_text(data.model_dump_json(indent=2))
    (out / "metrics.jsonl").write_text("".join(json.dumps(m) + "\n" for m in metrics()))
    (out / "trajectories.jsonl").write_text("".join(json.dumps(t.to_dict()) + "\n" for t in episodes))
    return out, tokenizer
