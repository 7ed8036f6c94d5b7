"""Actions inside the replies of language models, for protocols whose clients send whole replies."""

from __future__ import annotations

import re

_LABEL = re.compile(r"(?:^|\n)[ \t*_#>]*action[ \t*_]*:[ \t*_]*", re.IGNORECASE)
_STOP = re.compile(r"<\|\w{1,32}\|>|</s>")

#: Environments whose published prompts mark actions in another way than ``Action:``; group 0 is what their ``step`` reads.
MARKS = {
    "searchqa": re.compile(r"<(search|answer)>.*?</\1>", re.DOTALL),
    "webarena": re.compile(r"(?<=```).+?(?=```)", re.DOTALL),
}


def marked_action(env: str, reply: str) -> str | None:
    """The first action of ``reply`` in the marks of environment ``env``; ``None`` if it has none, or the environment no marks."""
    match = MARKS[env].search(reply) if env in MARKS else None
    return match[0].strip() if match else None


def action_in(env: str, reply: str) -> str:
    """The action that a reply means: what stands behind its last ``Action:``, else in the environment's marks, else the whole reply."""
    *_, last = _LABEL.split(reply)
    if last != reply:
        lines = (_STOP.split(line, maxsplit=1)[0].strip() for line in last.splitlines())
        labelled = next((line for line in lines if line), "")
        return marked_action(env, last) or labelled
    return marked_action(env, reply) or _STOP.sub("", reply).strip()
