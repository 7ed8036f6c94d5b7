"""``agl serve`` and ``agl doctor``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agentgym_lite.cli.errors import UserError
from agentgym_lite.cli.output import notes, print_json, results


def run_server(envs: Sequence[str], host: str, port: int, token: str | None, options: Sequence[str] = ()) -> None:
    """Serve until stopped, with ``env.option=value`` settings. Raises ``UserError``, ``UnknownEnvironment`` and ``ServeError``."""
    from agentgym_envs.server import serve

    def tell(url: str) -> None:
        notes.print(f"serving {', '.join(envs)} at {url} (Ctrl-C stops)", soft_wrap=True)
        notes.print(f"AgentGym's clients: {url}/agentgym/{envs[0]}   OpenEnv's clients: {url}/{envs[0]}", soft_wrap=True)

    serve(_with_options(envs, options), host, port, token, on_ready=tell)


def _with_options(envs: Sequence[str], options: Sequence[str]) -> dict[str, dict[str, Any]]:
    """The environments with the options of their constructors; values are YAML."""
    import yaml

    found: dict[str, dict[str, Any]] = {env: {} for env in envs}
    for text in options:
        key, equals, value = text.partition("=")
        env, dot, name = key.partition(".")
        if not (equals and dot and name and env in found):
            raise UserError(f"expected an option such as {envs[0]}.NAME=VALUE for one of {', '.join(envs)}, found {text!r:.80}")
        found[env][name] = yaml.safe_load(value)
    return found


def run_doctor(as_json: bool) -> None:
    """Print every check; missing parts are advice, not errors."""
    from rich.table import Table

    from agentgym_lite.doctor import examine

    checks = examine()
    if as_json:
        print_json({"ready": all(c.ok for c in checks if c.need == "required"), "checks": [c.to_dict() for c in checks]})
        return
    table = Table(box=None, pad_edge=False)
    for column in ("", "part", "found", "how to get it"):
        table.add_column(column, overflow="fold")
    for c in checks:
        mark = "[green]ok[/]" if c.ok else "[red]missing[/]" if c.need == "required" else "[yellow]absent[/]"
        table.add_row(mark, c.name, c.found, "" if c.ok else c.advice)
    results.print(table)
    missing = [c.name for c in checks if c.need == "required" and not c.ok]
    results.print(f"Missing for the demo: {', '.join(missing)}." if missing else "Everything that the demo needs is here.")
