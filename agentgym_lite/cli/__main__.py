"""``python -m agentgym_lite.cli`` is ``agl``."""

from agentgym_lite.cli import main

main()
