"""``agl serve`` and ``agl doctor``."""

from __future__ import annotations

from collections.abc import Sequence

from agentgym_lite.cli.output import notes, print_json, results


def run_server(envs: Sequence[str], host: str, port: int, token: str | None) -> None:
    """Serve until stopped. Raises ``UnknownEnvironment`` and ``ServeError``."""
    from agentgym_envs.server import serve

    serve(envs, host, port, token, on_ready=lambda url: notes.print(f"serving {', '.join(envs)} at {url} (Ctrl-C stops)", soft_wrap=True))


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
