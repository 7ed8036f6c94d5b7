"""What every configuration shares: strictness and the error that names the field."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class ConfigError(ValueError):
    """A configuration that cannot be used; the message names the field, what was found and what is allowed."""


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)
