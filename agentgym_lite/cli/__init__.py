"""Command line: ``agl``. One paragraph instead of a traceback for a user's mistake; exit code 0 only if the work was done."""

from __future__ import annotations

import sys

from agentgym_lite.cli.errors import explain


def main() -> None:
    """Entry point of ``agl``. Exit codes: 0 done, 1 an error that is explained, 2 wrong usage, 130 interrupted."""
    from agentgym_lite.cli.app import app

    try:
        app()
    except Exception as e:
        message = explain(e)
        if message is None:
            raise
        print(f"agl: {message}", file=sys.stderr)
        sys.exit(1)
