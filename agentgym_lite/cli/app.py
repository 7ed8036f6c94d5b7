"""The commands of ``agl``. What a command needs is imported when it runs, so that help and errors come at once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from agentgym_lite import __version__

app = typer.Typer(
    name="agl",
    help="Train LLM agents with multi-turn reinforcement learning, on a laptop or on GPUs.",
    epilog="Start with `agl demo`; `agl COMMAND --help` explains a command.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Json = Annotated[bool, typer.Option("--json", help="Print the result as one JSON document and nothing else on stdout.")]
Url = Annotated[list[str] | None, typer.Option(help="Server address; repeat it to share the work. Default: in process ('local').")]
Token = Annotated[str | None, typer.Option(envvar="AGENTGYM_TOKEN", help="Shared token of the server.")]
Agent = Annotated[str, typer.Option(help="expert, random, tiny (the shipped model), the folder of a model or of a training run.")]
Seed = Annotated[int, typer.Option(help="Equal seeds give equal runs.")]
Temperature = Annotated[float, typer.Option(min=0.0, help="Sampling temperature of a model; 0 is greedy.")]
Greedy = Annotated[bool, typer.Option("--greedy", help="The same as --temperature 0.")]


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"agentgym-lite {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")] = False,
) -> None:
    pass


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder of the run.")] = Path("runs/demo"),
    steps: Annotated[int | None, typer.Option(min=1, help="Training steps. Default: those of configs/demo/grpo.yaml.")] = None,
    minutes: Annotated[float | None, typer.Option(min=0.01, help="Limit on the training part. Default: 5.", show_default=False)] = None,
    seed: Seed = 0,
) -> None:
    """Watch a tiny agent learn: serve, evaluate, train with ScalingInter-RL, evaluate again, write a report."""
    from agentgym_lite.cli.training import run_demo

    run_demo(out, steps, minutes, seed)


@app.command()
def serve(
    env: Annotated[list[str], typer.Argument(help="Environments to serve, e.g. textcraft babyai.")],
    host: Annotated[str, typer.Option(help="Address to listen on; any but a loopback address needs --token.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on.")] = 36001,
    token: Token = None,
) -> None:
    """Serve environments over HTTP, each under its own name, until stopped with Ctrl-C."""
    from agentgym_lite.cli.serving import run_server

    run_server(env, host, port, token)


@app.command()
def rollout(
    env: Annotated[str, typer.Option(help="Environment to play.")],
    out: Annotated[Path, typer.Option(help="Folder for trajectories.jsonl and results.json.")],
    agent: Agent = "expert",
    n: Annotated[int, typer.Option("-n", min=1, help="Episodes; more than there are items plays items again.")] = 16,
    split: Annotated[Literal["train", "eval"], typer.Option(help="Items to play.")] = "train",
    rounds: Annotated[int, typer.Option(min=1, help="Limit on rounds per episode.")] = 20,
    url: Url = None,
    token: Token = None,
    seed: Seed = 0,
    temperature: Temperature = 1.0,
    greedy: Greedy = False,
    as_json: Json = False,
) -> None:
    """Play episodes and keep their trajectories. Run it again to continue a stopped run."""
    from agentgym_lite.cli.playing import run_rollout

    run_rollout(env, agent, n, out, split, rounds, url or ["local"], token, seed, 0.0 if greedy else temperature, as_json)


@app.command()
def train(
    config: Annotated[Path, typer.Argument(help="YAML file, e.g. configs/demo/grpo.yaml.")],
    override: Annotated[list[str] | None, typer.Argument(help="Settings to change, e.g. run.steps=10 envs.0.url=local.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the last checkpoint in the run's folder.")] = False,
) -> None:
    """Train a policy as a config file says. Unknown settings are errors."""
    from agentgym_lite.cli.training import run_training

    run_training(config, override or [], resume)


@app.command("eval")
def evaluate(
    out: Annotated[Path, typer.Option(help="Folder for trajectories.jsonl and results.json.")],
    agent: Agent = "tiny",
    suite: Annotated[str, typer.Option(help="Name of a shipped suite, or path of a manifest.")] = "lite27",
    only: Annotated[list[str] | None, typer.Option(help="An environment or a task to play alone; may be repeated.")] = None,
    n: Annotated[int, typer.Option("-n", min=1, help="Samples per item; pass@k is reported for k up to n.")] = 1,
    url: Url = None,
    token: Token = None,
    seed: Seed = 0,
    temperature: Temperature = 1.0,
    greedy: Greedy = False,
    as_json: Json = False,
) -> None:
    """Play an evaluation suite: success per task with 95 % intervals. Run it again to continue a stopped run."""
    from agentgym_lite.cli.playing import run_eval

    run_eval(agent, suite, only or [], n, out, url or ["local"], token, seed, 0.0 if greedy else temperature, as_json)


@app.command()
def tables(
    run: Annotated[list[Path] | None, typer.Argument(help="Folders of `agl eval` to show beside the paper.", show_default=False)] = None,
    scenario: Annotated[list[str] | None, typer.Option(help="A table, by scenario or environment; may be repeated. Default: all.")] = None,
    model: Annotated[list[str] | None, typer.Option(help="A model of the paper to show; may be repeated.")] = None,
    figures: Annotated[Path | None, typer.Option(help="Folder to draw the figures into.")] = None,
    as_json: Json = False,
) -> None:
    """Print the paper's tables with your runs beside them, and mark what contradicts itself in them."""
    from agentgym_lite.cli.tables import run_tables

    run_tables(run or [], scenario or [], model or [], figures, as_json)


@app.command()
def doctor(as_json: Json = False) -> None:
    """Say what is installed, what is missing, and how to get it."""
    from agentgym_lite.cli.serving import run_doctor

    run_doctor(as_json)
