"""SearchQA: questions answered with a search engine, in the manner of Search-R1."""

from agentgym_envs.searchqa.corpus import Passage
from agentgym_envs.searchqa.env import SearchQA
from agentgym_envs.searchqa.expert import Expert, RandomAgent
from agentgym_envs.searchqa.grading import exact_match, f1_score, normalize_answer
from agentgym_envs.searchqa.index import BM25, Dense, Hit, Retriever, shared_retriever
from agentgym_envs.searchqa.questions import KINDS, PUBLISHED_RANGES, Item, QuestionFiles, published_task
from agentgym_envs.searchqa.remote import RemoteRetriever, RetrievalError, retrieval_router

__all__ = [
    "BM25",
    "KINDS",
    "PUBLISHED_RANGES",
    "Dense",
    "Expert",
    "Hit",
    "Item",
    "Passage",
    "QuestionFiles",
    "RandomAgent",
    "RemoteRetriever",
    "RetrievalError",
    "Retriever",
    "SearchQA",
    "exact_match",
    "f1_score",
    "normalize_answer",
    "published_task",
    "retrieval_router",
    "shared_retriever",
]
