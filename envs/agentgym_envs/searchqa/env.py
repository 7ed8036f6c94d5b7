"""The SearchQA environment (Search-R1, Jin et al. 2025, arXiv 2503.09516): search a corpus in turns, then answer the question."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

from agentgym_envs.core import Environment, Observation, Split, StepResult
from agentgym_envs.searchqa.actions import MAX_TEXT, UnreadableAction, parse_action
from agentgym_envs.searchqa.grading import exact_match, f1_score
from agentgym_envs.searchqa.index import Hit, Retriever, shared_retriever
from agentgym_envs.searchqa.questions import Item, QuestionFiles, Questions, shipped
from agentgym_envs.searchqa.remote import shared_remote

_MAX_SHOWN = 2000  # characters of one passage


class SearchQA(Environment):
    """Answer a question with the help of a search engine; reward 1 for an exact match, else 0, paid when the episode ends.

    ``retriever``: ``"bm25"``, ``"dense"``, ``"e5"``, a URL in Search-R1's protocol, or an object with ``search(query, k)``.
    ``questions``: None for the shipped set, a path as :class:`QuestionFiles` reads it, or an object with ``item(index)``.
    ``reward="f1"`` pays the F1 of the answer instead. ``end_on_wrong_answer=False`` lets the agent answer again and again, as the
    reference server does.
    """

    name: ClassVar[str] = "searchqa"
    version: ClassVar[str] = "1+ccc6170804ef"  # rules, then shipped().version
    instructions: ClassVar[str] = (
        "Answer the question. You can search as often as you need; each search returns passages between <information> and "
        "</information>. Actions: <search>query</search>; <answer>short answer</answer>. Answer once you are sure.\n"
        "Reply with one action, in this format:\nThought: your reasoning\nAction: your action"
    )

    def __init__(
        self,
        retriever: str | Retriever = "bm25",
        topk: int = 3,
        questions: str | Path | Questions | None = None,
        reward: Literal["em", "f1"] = "em",
        end_on_wrong_answer: bool = True,
    ) -> None:
        if topk < 1:
            raise ValueError(f"expected topk >= 1, found {topk}")
        if reward not in ("em", "f1"):
            raise ValueError(f"expected reward 'em' or 'f1', found {reward!r:.40}")
        self._retriever = retriever
        self._topk, self._reward, self._end_on_wrong = topk, reward, end_on_wrong_answer
        self._questions = _open_questions(questions)
        self._item: Item | None = None
        self._history: list[dict[str, Any]] = []
        self._last = ""
        self._done = self._success = False
        self._score = 0.0

    @classmethod
    def items(cls, split: Split) -> list[str]:
        """Item ids of a split of the shipped questions, kind by kind."""
        return [f"{cls.name}_{i}" for i, item in enumerate(shipped().items) if item.split == split]

    @classmethod
    def task_of(cls, item_id: str | int) -> str:
        """``nq, triviaqa, popqa, hotpotqa, 2wiki, musique`` or ``bamboogle``, of the shipped questions. Raises ``UnknownItem``."""
        return shipped().item(cls.item_index(item_id)).kind

    def reset(self, item_id: str | int, seed: int = 0) -> Observation:
        """Start the episode of a question; nothing is random, so that ``seed`` changes nothing. Raises ``UnknownItem``."""
        self._item = self._questions.item(self.item_index(item_id))
        self._history = []
        self._done = self._success = False
        self._score = 0.0
        self._last = f"Question: {self._item.question}"
        return self._observe()

    def step(self, action: str) -> StepResult:
        """Search or answer. Raises ``RuntimeError`` before ``reset`` and if a retrieval server fails (``RetrievalError``)."""
        item = self._episode()
        if self._done:
            return self._result(0.0, invalid=True)
        try:
            parsed = parse_action(action)
        except UnreadableAction as e:
            self._last = str(e)
            return self._result(0.0, invalid=True)
        return self._search(item, parsed.text) if parsed.kind == "search" else self._answer(item, parsed.text)

    def available_actions(self) -> list[str]:
        """A search for the question and for each title seen; other queries, and answers, cannot be listed."""
        if self._item is None or self._done:
            return []
        titles = [p["title"] for entry in self._history for p in entry.get("passages", ())]
        return [f"<search>{text[:MAX_TEXT]}</search>" for text in dict.fromkeys([self._item.question, *titles]) if text]

    def render(self) -> dict[str, Any]:
        """Question, gold answers and passages, and every search and answer so far. Raises ``RuntimeError`` before ``reset``."""
        item = self._episode()
        seen = {p["id"] for entry in self._history for p in entry.get("passages", ())}
        return {
            "kind": self.name,
            "text": "\n".join([f"Question: {item.question}", *map(_line, self._history)]),
            "question": item.question,
            "task": item.kind,
            "answers": list(item.answers),
            "gold": [{"id": gold, "found": gold in seen} for gold in item.gold],
            "steps": [dict(entry) for entry in self._history],
            "done": self._done,
            "success": self._success,
        }

    def _search(self, item: Item, query: str) -> StepResult:
        hits = self._engine().search(query, self._topk)
        self._history.append({"search": query, "passages": [_shown(hit, item.gold) for hit in hits]})
        self._last = f"<information>{format_hits(hits)}</information>"
        return self._result(0.0, invalid=False, passages=[hit.passage.id for hit in hits])

    def _answer(self, item: Item, answer: str) -> StepResult:
        em, f1 = exact_match(answer, item.answers), f1_score(answer, item.answers)
        self._history.append({"answer": answer, "em": em, "f1": f1})
        self._score = max(self._score, em if self._reward == "em" else f1)
        self._success = em == 1.0
        self._done = self._success or self._end_on_wrong
        if self._success:
            self._last = "Your answer is correct."
        else:
            self._last = "Your answer is wrong." if self._done else "Your answer is wrong. Search on or answer again."
        reward = (em if self._reward == "em" else f1) if self._done else 0.0
        return self._result(reward, invalid=False, answer=answer, em=em, f1=f1)

    def _engine(self) -> Retriever:
        if isinstance(self._retriever, str):
            url = self._retriever.startswith(("http://", "https://"))
            self._retriever = shared_remote(self._retriever) if url else shared_retriever(self._retriever)
        return self._retriever

    def _episode(self) -> Item:
        if self._item is None:
            raise RuntimeError("SearchQA: call reset(item_id) before step or render")
        return self._item

    def _observe(self) -> Observation:
        return Observation(self._last, tuple(self.available_actions()))

    def _result(self, reward: float, invalid: bool, **info: Any) -> StepResult:
        return StepResult(self._observe(), reward, self._done, {"success": self._success, "invalid": invalid, "score": self._score, **info})


def _open_questions(questions: str | Path | Questions | None) -> Questions:
    if questions is None:
        return shipped()
    return QuestionFiles(questions) if isinstance(questions, str | Path) else questions


def format_hits(hits: Sequence[Hit]) -> str:
    """``Doc 1(Title: "...") text`` per line, or a line that says that nothing was found."""
    lines = (f'Doc {i}(Title: "{hit.passage.title}") {hit.passage.text[:_MAX_SHOWN]}' for i, hit in enumerate(hits, 1))
    return "\n".join(lines) or "No passage was found; try other words."


def _shown(hit: Hit, gold: Sequence[str]) -> dict[str, Any]:
    p = hit.passage
    return {"id": p.id, "title": p.title, "text": p.text[:_MAX_SHOWN], "score": hit.score, "gold": p.id in gold}


def _line(entry: dict[str, Any]) -> str:
    if "answer" in entry:
        return f"Answer: {entry['answer']} (exact match {entry['em']:.0f}, F1 {entry['f1']:.2f})"
    passages = [f"  {'*' if p['gold'] else '-'} {p['score']:.2f} {p['title']}: {p['text'][:160]}" for p in entry["passages"]]
    return "\n".join([f"Search: {entry['search']}", *passages])
