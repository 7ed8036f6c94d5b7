"""Makes the toy world of the unit tests importable."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "unit"))
