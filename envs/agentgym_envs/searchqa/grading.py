"""Answer grading: exact match and F1 over gold answers and their aliases, after SQuAD normalisation."""

from __future__ import annotations

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Iterable

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalize_answer(text: str) -> str:
    """Lower case, no ASCII punctuation, no articles, single blanks (Rajpurkar et al. 2016, arXiv 1606.05250)."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def exact_match(prediction: str, golds: Iterable[str]) -> float:
    """1.0 if the normalised prediction equals a normalised gold answer, else 0.0; an empty prediction never matches."""
    found = normalize_answer(prediction)
    return float(bool(found) and any(found == normalize_answer(gold) for gold in golds))


def f1_score(prediction: str, golds: Iterable[str]) -> float:
    """Best over the gold answers of ``2 P R / (P + R)`` on normalised words counted with multiplicity.

    As in HotpotQA's grader, "yes", "no" and "noanswer" have no partial match: F1 is then the exact match.
    """
    return max((_f1(normalize_answer(prediction), normalize_answer(gold)) for gold in golds), default=0.0)


def fold(text: str) -> str:
    """Lower case without accents: how queries meet passages, and names meet names."""
    decomposed = unicodedata.normalize("NFKD", text.replace("ʻ", "'").replace("’", "'"))
    return "".join(c for c in decomposed if not unicodedata.combining(c)).lower()


def _f1(found: str, gold: str) -> float:
    if {found, gold} & {"yes", "no", "noanswer"}:
        return float(found == gold)
    found_words, gold_words = found.split(), gold.split()
    shared = (Counter(found_words) & Counter(gold_words)).total()
    if not shared:
        return 0.0
    precision, recall = shared / len(found_words), shared / len(gold_words)
    return 2 * precision * recall / (precision + recall)
