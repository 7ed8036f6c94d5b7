"""The one error that tells a caller that an environment, not the agent, has failed."""

from __future__ import annotations


class EnvironmentFailure(RuntimeError):
    """An environment or its server failed; the episode is lost and says nothing about the agent.

    ``env``, ``url`` and ``item_id`` say where, ``what`` what happened, ``remedy`` what to do.
    """

    def __init__(self, what: str, *, env: str, url: str, item_id: str | int | None = None, remedy: str = "start the episode again") -> None:
        item = f", item {item_id!r:.80}" if item_id is not None else ""
        super().__init__(f"environment '{env}' at {url}{item}: {what}; {remedy}")
        self.env, self.url, self.item_id, self.what, self.remedy = env, url, item_id, what, remedy
