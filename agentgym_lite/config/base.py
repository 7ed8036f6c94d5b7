"""What every configuration shares: strictness and the error that names the field."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict


class ConfigError(ValueError):
    """A configuration that cannot be used; the message names the field, what was found and what is allowed."""


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


def load_callable(name: str, field: str) -> Callable[..., Any]:
    """The function that a setting names as ``package.module:function``; the current folder is searched too.

    Raises ``ConfigError`` naming ``field`` if there is no such module or function.
    """
    module, _, attribute = name.partition(":")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as e:
        raise ConfigError(f"setting '{field}': expected package.module:function, found {name!r}: {e}") from None
    if not callable(found):
        raise ConfigError(f"setting '{field}': expected a function, found {type(found).__name__} under {name!r}")
    function: Callable[..., Any] = found
    return function
