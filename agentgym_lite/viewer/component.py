"""The viewer's front end: one ES module and one stylesheet, put into pages, notebook outputs and the widget as they are."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from agentgym_lite.viewer.html import View, asset, render
from agentgym_lite.viewer.tokens import PROBABILITY_STEPS

#: Files of the module; each comes after what it imports.
_MODULES = ("dom.js", "pictures.js", "tokens.js", "player.js", "sources.js", "browser.js", "live.js", "main.js")
_IMPORT = re.compile(r"^import \{[^}]*\} from \"\./[\w.]+\";\n", re.MULTILINE)
_EXPORT = re.compile(r"^export (?!default)", re.MULTILINE)


@cache
def script() -> str:
    """The files of the module as one module, which needs nothing from outside; its default export is what anywidget calls."""
    parts = [_EXPORT.sub("", _IMPORT.sub("", asset(name))) for name in _MODULES]
    return "\n".join([f"const PROBABILITY_STEPS = {json.dumps(PROBABILITY_STEPS)};", *parts])


@cache
def script_hash() -> str:
    """The script's name in a Content-Security-Policy: no other script may then run in the page."""
    return "sha256-" + base64.b64encode(hashlib.sha256(script().encode()).digest()).decode()


def script_json(data: Any) -> str:
    """JSON that can stand inside a ``<script>`` element: nothing in it can end the element or open a comment."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def component(data: Mapping[str, Any], fallback: str = "") -> View:
    """The component showing ``data``; ``fallback`` is the text that stands there where no script runs."""
    return View(render("component.html.j2", data=View(script_json(data)), fallback=fallback))
