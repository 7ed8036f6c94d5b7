"""Command line: ``agl``. One paragraph instead of a traceback for a user's mistake; exit code 0 only if the work was done."""

from __future__ import annotations

import os
import sys
import warnings
from typing import TextIO

from agentgym_lite.cli.errors import explain


def main() -> None:
    """Entry point of ``agl``. Exit codes: 0 done, 1 an error that is explained, 2 wrong usage, 130 interrupted."""
    from agentgym_lite.cli.app import app

    # Other libraries' progress bars and remarks would bury what a command has to say.
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            app()
    except Exception as e:
        message = explain(e)
        if message is None:
            raise
        print(f"agl: {message}", file=sys.stderr)
        sys.exit(1)


def _show_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, file: TextIO | None = None, line: str | None = None
) -> None:
    """A warning as a user reads it, without the place in the code."""
    print(f"agl: warning: {message}", file=file or sys.stderr)
