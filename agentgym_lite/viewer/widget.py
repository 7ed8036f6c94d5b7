"""The viewer as a notebook widget: the same component, with the kernel in the place of a server."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import anywidget
import traitlets

from agentgym_lite.rollout.types import Trajectory
from agentgym_lite.viewer.component import script
from agentgym_lite.viewer.export import embed
from agentgym_lite.viewer.html import asset
from agentgym_lite.viewer.store import Source, TrajectoryList, TrajectoryStore
from agentgym_lite.viewer.tokens import Decode

#: Trajectories inside the static form, which is shown where there is no widget front end.
STATIC = 20

_ANSWERS: dict[str, Callable[[Source, dict[str, Any]], dict[str, Any]]] = {
    "index": lambda source, args: source.index(int(args["start"]), bool(args["refresh"])),
    "body": lambda source, args: source.body(int(args["id"])),
    "search": lambda source, args: {"ids": source.search(str(args["text"]))},
}


class TrajectoryViewer(anywidget.AnyWidget):
    """List, filter and replay trajectories: a list of them, or a path as for ``agl replay``.

    ``decode`` gives the text of the tokens of a list; those of a path come with the tokenizer that the run names. Raises ``StoreError``.
    """

    _esm = script()
    _css = asset("viewer.css")
    title = traitlets.Unicode("Trajectories").tag(sync=True)

    def __init__(self, source: str | Path | Sequence[Trajectory], decode: Decode | None = None, *, title: str = "Trajectories") -> None:
        self._source: TrajectoryStore | TrajectoryList
        if isinstance(source, str | Path):
            self._source = TrajectoryStore(source)
            self._source.scan_in_background()
        else:
            self._source = TrajectoryList(source, decode)
        super().__init__(title=title)
        self.on_msg(self._answer)

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        """The widget, and a static form of the first :data:`STATIC` trajectories where no widget can be shown."""
        bundle = super()._repr_mimebundle_(**kwargs)
        if bundle and (numbers := range(min(STATIC, len(self._source)))):
            (bundle[0] if isinstance(bundle, tuple) else bundle)["text/html"] = embed(self._source, numbers, title=self.title)._repr_html_()
        return bundle

    def _answer(self, _: Any, message: dict[str, Any], buffers: Any) -> None:
        reply = {"number": message.get("number")}
        try:
            self.send({**reply, "answer": _ANSWERS[message["name"]](self._source, message["args"])})
        except (ValueError, KeyError, TypeError) as e:
            self.send({**reply, "error": str(e)})
