"""Tests on a real vLLM, in an environment of its own: ``make test-vllm``. They share helpers with the unit tests."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "unit"))
