"""``agl replay`` and ``agl play``: the viewer as a local web page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from agentgym_lite.cli.errors import UserError
from agentgym_lite.cli.output import notes, results
from agentgym_lite.viewer.export import export_html
from agentgym_lite.viewer.live import LiveAgent, LiveGame
from agentgym_lite.viewer.payload import COLUMNS
from agentgym_lite.viewer.server import create_live_app, create_replay_app, serve_viewer
from agentgym_lite.viewer.store import TrajectoryStore

Outcome = Literal["success", "failure"]
HUMAN = "human"


def run_replay(path: Path, port: int, tokenizer: str | None, limit_mb: float) -> None:
    """Serve the trajectories under ``path`` until stopped. Raises ``StoreError`` and ``ViewerError``."""
    app = create_replay_app(TrajectoryStore(path, tokenizer), limit_mb)
    serve_viewer(app, port, lambda url: notes.print(f"trajectories of '{path}' at {url} (Ctrl-C stops)", soft_wrap=True))


def run_export(
    path: Path,
    out: Path,
    tokenizer: str | None,
    limit_mb: float,
    envs: Sequence[str],
    items: Sequence[str],
    outcome: Outcome | None,
    n: int,
) -> None:
    """Write the first ``n`` trajectories that pass the filters to one HTML file. Raises ``StoreError``."""
    store = TrajectoryStore(path, tokenizer)
    store.scan()
    rows = [dict(zip(COLUMNS, row, strict=True)) for row in store.rows]
    wins = None if outcome is None else outcome == "success"
    chosen = [
        r["id"] for r in rows if (not envs or r["env"] in envs) and (not items or r["item"] in items) and wins in (None, r["success"])
    ]
    out.write_text(export_html(store, chosen[:n], title=path.resolve().name, limit_mb=limit_mb), encoding="utf-8")
    left = f", the first of {len(chosen)}; -n takes more" if len(chosen) > n else ""
    results.print(f"{min(n, len(chosen))} trajectories in {out}{left}", soft_wrap=True)


def run_play(
    env: str, item: str, agent: str, seed: int, rounds: int, port: int, urls: Sequence[str], token: str | None, temperature: float
) -> None:
    """Serve one live game until stopped. Raises what its parts raise."""
    from agentgym_envs.core import environment_class
    from agentgym_lite.client import SessionPool

    environment_class(env).task_of(item or environment_class(env).items("eval")[0])  # a wrong item is told before a page opens
    player = None if agent == HUMAN else live_agent(agent, env, seed, temperature)
    with SessionPool(env, list(urls), token=token) as pool:
        game = LiveGame(env, player, item=item, seed=seed, max_rounds=rounds, pool=pool)
        try:
            serve_viewer(create_live_app(game), port, lambda url: notes.print(f"play {env} at {url} (Ctrl-C stops)", soft_wrap=True))
        finally:
            game.close()


def live_agent(agent: str, env: str, seed: int, temperature: float) -> LiveAgent:
    """Whoever ``agent`` names. Raises ``AgentError``, ``ModelError``, ``EndpointError``, ``UserError``."""
    from agentgym_lite.evaluation.players import ENDPOINT, ENDPOINT_TOKENS
    from agentgym_lite.viewer.live import EndpointAgent, PolicyAgent

    if agent in ("expert", "random"):
        from agentgym_lite.agents import ExpertPolicy, RandomPolicy

        return PolicyAgent(agent, ExpertPolicy(env) if agent == "expert" else RandomPolicy(env, seed))
    if agent.startswith(ENDPOINT):
        from agentgym_lite.rollout.openai import ChatEndpoint

        endpoint = ChatEndpoint(agent.removeprefix(ENDPOINT), temperature=temperature, max_new_tokens=ENDPOINT_TOKENS)
        return EndpointAgent(agent, endpoint, seed)
    return _local_model(agent, seed, temperature)


def _local_model(agent: str, seed: int, temperature: float) -> LiveAgent:
    import torch

    from agentgym_lite.agents import ChatRenderer
    from agentgym_lite.cli.playing import resolve
    from agentgym_lite.evaluation.players import NATIVE_TOKENS
    from agentgym_lite.models import load_model, load_tokenizer
    from agentgym_lite.rollout.native import NativeEngine
    from agentgym_lite.rollout.types import SamplingParams
    from agentgym_lite.viewer.live import ModelAgent

    folder = resolve(agent)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model: Any = load_model(folder).to(device)
    renderer = ChatRenderer(load_tokenizer(folder))
    length = min(8192, int(model.config.max_position_embeddings))
    try:
        engine = NativeEngine(model, max_sessions=1, max_length=length, stop_ids=renderer.stop_ids, device=device)
    except ValueError as e:
        raise UserError(f"the model in '{folder}' cannot play: {e}") from e
    return ModelAgent(agent, engine, renderer, SamplingParams(temperature, 1.0, NATIVE_TOKENS), seed)
