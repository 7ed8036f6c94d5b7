"""The commands of ``agl``. What a command needs is imported when it runs, so that help and errors come at once."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Literal

import typer

from agentgym_lite import __version__
from agentgym_lite.cli.course import course

app = typer.Typer(
    name="agl",
    help="Train LLM agents with multi-turn reinforcement learning, on a laptop or on GPUs.",
    epilog="Start with `agl demo`; `agl COMMAND --help` explains a command.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(course, name="course")

Json = Annotated[bool, typer.Option("--json", help="Print the result as one JSON document and nothing else on stdout.")]
Url = Annotated[list[str] | None, typer.Option(help="Server address; repeat it to share the work. Default: in process ('local').")]
Token = Annotated[str | None, typer.Option(envvar="AGENTGYM_TOKEN", help="Shared token of the server.")]
Agent = Annotated[
    str,
    typer.Option(
        help="expert, random, tiny (the shipped model), the folder of a model or of a training run, org/name on the hub, openai:NAME."
    ),
]
Preset = Annotated[
    list[str] | None,
    typer.Option(help="Settings to put on the config: a YAML file, or one in the folder presets beside it, e.g. lora; may be repeated."),
]
Seed = Annotated[int, typer.Option(help="Equal seeds give equal runs.")]
Temperature = Annotated[float, typer.Option(min=0.0, help="Sampling temperature of a model; 0 is greedy.")]
Greedy = Annotated[bool, typer.Option("--greedy", help="The same as --temperature 0.")]
Format = Annotated[str, typer.Option(help="How actions are written: react, function_call, code, search_tags, backticks.")]
Strategy = Annotated[str, typer.Option(help="plain, plan, or reflect:N for N attempts with reflections in between.")]
Memory = Annotated[str, typer.Option(help="What stays in view: full, window:K turns, or summary:K, made every K rounds.")]
Tokens = Annotated[int | None, typer.Option(min=1, help="Limit on tokens per reply. Default: 64, for openai:NAME 512.", show_default=False)]
MaxLength = Annotated[int, typer.Option(min=16, help="Longest conversation of a local model, in tokens.")]
Engine = Annotated[Literal["native", "vllm"], typer.Option(help="What samples for a local model; vllm is to be installed (docs/vllm.md).")]
EngineUrl = Annotated[list[str] | None, typer.Option(help="vLLM server that takes the model's weights; may be repeated. Default: none.")]
Workers = Annotated[
    int | None, typer.Option(min=1, help="Processes for expert and random, if local. Default: one per core.", show_default=False)
]
BaseUrl = Annotated[str | None, typer.Option(envvar="OPENAI_BASE_URL", help="Endpoint of openai:NAME, e.g. http://localhost:8000/v1.")]
ApiKey = Annotated[str | None, typer.Option(envvar="OPENAI_API_KEY", help="Key of the endpoint.", show_envvar=True)]
Concurrency = Annotated[int, typer.Option(min=1, help="Episodes at a time with openai:NAME.")]
ReplyTimeout = Annotated[float, typer.Option(min=0.1, help="Seconds to wait for a reply of openai:NAME, per attempt.")]


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
    option: Annotated[
        list[str] | None,
        typer.Option("--set", help="An environment's option, ENV.NAME=VALUE, e.g. searchqa.retriever=URL; may be repeated."),
    ] = None,
) -> None:
    """Serve environments over HTTP, each under its own name, until stopped with Ctrl-C."""
    from agentgym_lite.cli.serving import run_server

    run_server(env, host, port, token, option or [])


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
    format: Format = "react",
    strategy: Strategy = "plain",
    memory: Memory = "full",
    max_new_tokens: Tokens = None,
    max_length: MaxLength = 2048,
    engine: Engine = "native",
    engine_url: EngineUrl = None,
    workers: Workers = None,
    base_url: BaseUrl = None,
    api_key: ApiKey = None,
    concurrency: Concurrency = 16,
    reply_timeout: ReplyTimeout = 120.0,
    as_json: Json = False,
) -> None:
    """Play episodes and keep their trajectories. Run it again to continue a stopped run."""
    from agentgym_lite.cli.playing import run_rollout

    run_rollout(
        env,
        agent,
        n,
        out,
        split,
        rounds,
        url=url or ["local"],
        token=token,
        seed=seed,
        temperature=0.0 if greedy else temperature,
        format=format,
        strategy=strategy,
        memory=memory,
        max_new_tokens=max_new_tokens,
        max_length=max_length,
        engine=engine,
        engine_url=engine_url or "local",
        workers=workers or os.cpu_count() or 1,
        base_url=base_url,
        api_key=api_key,
        concurrency=concurrency,
        timeout_s=reply_timeout,
        as_json=as_json,
    )


@app.command()
def train(
    config: Annotated[Path, typer.Argument(help="YAML file, e.g. configs/demo/grpo.yaml.")],
    override: Annotated[list[str] | None, typer.Argument(help="Settings to change, e.g. run.steps=10 envs.0.url=local.")] = None,
    preset: Preset = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the last checkpoint in the run's folder.")] = False,
) -> None:
    """Train a policy as a config file says. Unknown settings are errors. Under torchrun, on all its processes."""
    from agentgym_lite.cli.training import run_training

    run_training(config, override or [], preset or [], resume)


@app.command()
def plan(
    config: Annotated[Path, typer.Argument(help="YAML file of method rl, e.g. configs/paper/textcraft_fixed.yaml.")],
    override: Annotated[list[str] | None, typer.Argument(help="Settings to change, e.g. rollout.max_sessions=16.")] = None,
    preset: Preset = None,
    gpus: Annotated[int | None, typer.Option(min=1, help="Devices to share the run. Default: 1.", show_default=False)] = None,
    gpu_memory: Annotated[
        float | None, typer.Option(min=0.1, help="GiB of each GPU. Default: what this machine has, GPU or CPU.", show_default=False)
    ] = None,
    tokens_per_second: Annotated[float | None, typer.Option(min=0.1, help="Tokens that a device samples per second.")] = None,
    train_tokens_per_second: Annotated[float | None, typer.Option(min=0.1, help="Tokens that a device trains on per second.")] = None,
    run: Annotated[Path | None, typer.Option(help="Folder of a run to take tokens and throughput from.", show_default=False)] = None,
    as_json: Json = False,
) -> None:
    """Say what memory, tokens and time a run will need. Exit code 1 if it cannot be run."""
    from agentgym_lite.cli.plan import run_plan

    run_plan(
        config,
        override or [],
        preset or [],
        gpus=gpus,
        gpu_memory=gpu_memory,
        sampled=tokens_per_second,
        trained=train_tokens_per_second,
        run=run,
        as_json=as_json,
    )


@app.command("eval")
def evaluate(
    out: Annotated[Path, typer.Option(help="Folder for trajectories.jsonl and results.json.")],
    agent: Agent = "tiny",
    suite: Annotated[str, typer.Option(help="Name of a shipped suite, or path of a manifest.")] = "lite27",
    only: Annotated[list[str] | None, typer.Option(help="An environment or a task to play alone; may be repeated.")] = None,
    n: Annotated[int, typer.Option("-n", min=1, help="Samples per item; pass@k is reported for k up to n.")] = 1,
    rounds: Annotated[
        int | None, typer.Option(min=1, help="Limit on rounds in place of the suite's, to study the horizon.", show_default=False)
    ] = None,
    url: Url = None,
    token: Token = None,
    seed: Seed = 0,
    temperature: Temperature = 1.0,
    greedy: Greedy = False,
    format: Format = "react",
    strategy: Strategy = "plain",
    memory: Memory = "full",
    max_new_tokens: Tokens = None,
    max_length: MaxLength = 2048,
    engine: Engine = "native",
    engine_url: EngineUrl = None,
    workers: Workers = None,
    base_url: BaseUrl = None,
    api_key: ApiKey = None,
    concurrency: Concurrency = 16,
    reply_timeout: ReplyTimeout = 120.0,
    as_json: Json = False,
) -> None:
    """Play an evaluation suite: success per task with 95 % intervals. Run it again to continue a stopped run."""
    from agentgym_lite.cli.playing import run_eval

    run_eval(
        agent,
        suite,
        only or [],
        n,
        rounds,
        out,
        url=url or ["local"],
        token=token,
        seed=seed,
        temperature=0.0 if greedy else temperature,
        format=format,
        strategy=strategy,
        memory=memory,
        max_new_tokens=max_new_tokens,
        max_length=max_length,
        engine=engine,
        engine_url=engine_url or "local",
        workers=workers or os.cpu_count() or 1,
        base_url=base_url,
        api_key=api_key,
        concurrency=concurrency,
        timeout_s=reply_timeout,
        as_json=as_json,
    )


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
def replay(
    path: Annotated[Path, typer.Argument(help="A trajectories.jsonl, a run folder or a folder of runs.")],
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port of the page; 0 takes a free one.")] = 36002,
    tokenizer: Annotated[
        str | None, typer.Option(help="Model whose tokenizer shows the tokens. Default: the one that the run names.")
    ] = None,
    export: Annotated[Path | None, typer.Option(help="Write one HTML file instead of serving a page.")] = None,
    env: Annotated[list[str] | None, typer.Option(help="With --export: an environment to take; may be repeated.")] = None,
    item: Annotated[list[str] | None, typer.Option(help="With --export: an item to take; may be repeated.")] = None,
    outcome: Annotated[Literal["success", "failure"] | None, typer.Option(help="With --export: only these.")] = None,
    n: Annotated[int, typer.Option("-n", min=1, help="With --export: at most this many.")] = 100,
    limit_mb: Annotated[float, typer.Option(min=0.1, help="Largest export, in MB.")] = 20.0,
) -> None:
    """Look at trajectories in the browser: filter, search, play, compare."""
    from agentgym_lite.cli.errors import UserError
    from agentgym_lite.cli.replay import run_export, run_replay

    if export is None and (env or item or outcome):
        raise UserError("--env, --item and --outcome choose what --export writes, found no --export; the page has filters of its own")
    if export is None:
        run_replay(path, port, tokenizer, limit_mb)
    else:
        run_export(path, export, tokenizer, limit_mb, env or [], item or [], outcome, n)


@app.command()
def play(
    env: Annotated[str, typer.Option(help="Environment to play.")],
    item: Annotated[str, typer.Option(help="Item to begin with. Default: the first to evaluate.", show_default=False)] = "",
    agent: Annotated[str, typer.Option(help="human (alone), expert, random, or a model as for `agl eval`; you can step in.")] = "human",
    seed: Seed = 0,
    rounds: Annotated[int, typer.Option(min=1, help="Limit on rounds per episode.")] = 30,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port of the page; 0 takes a free one.")] = 36002,
    url: Url = None,
    token: Token = None,
    temperature: Temperature = 1.0,
) -> None:
    """Play an environment in the browser, or watch an agent play it."""
    from agentgym_lite.cli.replay import run_play

    run_play(env, item, agent, seed, rounds, port, url or ["local"], token, temperature)


@app.command()
def doctor(as_json: Json = False) -> None:
    """Say what is installed, what is missing, and how to get it."""
    from agentgym_lite.cli.serving import run_doctor

    run_doctor(as_json)
