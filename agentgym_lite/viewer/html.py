"""Self-contained HTML fragments: one stylesheet, one script, no network, hostile text made harmless."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

#: Nothing but what is in the page may load, and no script but our own may run, whatever the text of an agent says.
CONTENT_SECURITY_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src '{script}'; img-src data:; connect-src {connect}"


@dataclass(frozen=True, repr=False)
class View:
    """A piece of HTML: the value of a notebook cell, a part of a page, or a page of its own."""

    body: str

    def _repr_html_(self) -> str:
        from agentgym_lite.viewer.component import script

        return f'<style>{asset("viewer.css")}</style><div class="agl">{self.body}</div><script type="module">{script()}</script>'

    def __html__(self) -> str:  # templates embed a view without escaping it a second time
        return self.body

    def __repr__(self) -> str:
        return f"<View: {len(self.body):,} characters of HTML; shown by a notebook, or .save(path) and open it>"

    def page(self, title: str, *, kind: str = "", connect: str = "'none'") -> str:
        """A complete HTML document; ``kind`` is a class of its body, ``connect`` where its script may send requests."""
        from agentgym_lite.viewer.component import script, script_hash

        policy = CONTENT_SECURITY_POLICY.format(script=script_hash(), connect=connect)
        return render("page.html.j2", title=title, body=self, kind=kind, csp=policy, script=View(script()))

    def save(self, path: str | Path, title: str = "AgentGym-Lite") -> Path:
        """Write :meth:`page` to ``path``."""
        path = Path(path)
        path.write_text(self.page(title), encoding="utf-8")
        return path


def asset(name: str) -> str:
    """Text of a file in this package's ``templates`` folder."""
    return files("agentgym_lite.viewer").joinpath("templates", name).read_text(encoding="utf-8")


def render(template: str, **values: Any) -> str:
    """Fill in a template. Every value is cleaned and escaped, unless it is a :class:`View`."""
    return _templates().get_template(template).render(**values)


@cache
def _templates() -> Environment:
    env = Environment(
        loader=FunctionLoader(asset), autoescape=True, finalize=_finalize, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    env.filters["duration"] = duration
    env.globals.update(asset=lambda name: Markup(asset(name)))
    return env


def _finalize(value: Any) -> Any:
    return clean(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def clean(text: str) -> str:
    """Text with nothing in it that acts instead of showing: control and direction-changing characters become visible codes."""
    return "".join(c if c in "\n\t" or not unicodedata.category(c).startswith("C") else _code(c) for c in text)


def _code(c: str) -> str:
    n = ord(c)
    return chr(0x2400 + n) if n < 0x20 else "\u2421" if n == 0x7F else f"\\u{{{n:x}}}"


def duration(seconds: float) -> str:
    """``288.4`` to ``"4 min 48 s"``."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    parts = [f"{hours} h"] * (hours > 0) + [f"{minutes} min"] * (minutes > 0) + [f"{rest} s"] * (rest > 0)
    return " ".join(parts) or f"{seconds:.1f} s"
