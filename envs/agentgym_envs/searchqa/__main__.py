"""Serve the shipped corpus in Search-R1's protocol: ``python -m agentgym_envs.searchqa --port 8000``."""

from __future__ import annotations

import argparse

import uvicorn
from fastapi import FastAPI

from agentgym_envs.searchqa.index import shared_retriever
from agentgym_envs.searchqa.remote import retrieval_router


def main() -> None:
    parser = argparse.ArgumentParser(description="Serve the shipped corpus at POST /retrieve, on this machine only.")
    parser.add_argument("--retriever", choices=["bm25", "dense", "e5"], default="bm25")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--topk", type=int, default=3, help="passages per query where the request names no number")
    args = parser.parse_args()
    app = FastAPI(title="SearchQA retrieval")
    app.include_router(retrieval_router(shared_retriever(args.retriever), args.topk))
    uvicorn.run(app, host="127.0.0.1", port=args.port)


if __name__ == "__main__":
    main()
