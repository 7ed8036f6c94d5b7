"""Item ids in the form of the data set ``AgentGym/AgentGym-RL-Data-ID``, from the model hub or from a folder.

The data set holds one JSON array of ``{"item_id": "textcraft_31"}`` per environment and split. Nothing of it is shipped: it is
licensed CC-BY-NC-4.0.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agentgym_envs.core import Split

HUB_NAME = "AgentGym/AgentGym-RL-Data-ID"
#: Where the list of a split may lie, in the data set and in the folders that AgentGym-RL's scripts expect.
_PLACES = {
    "train": ("train/{env}_train.json", "train/{env}.json", "{env}_train.json", "AgentItemId/{env}_train.json"),
    "eval": (
        "eval/{env}_test.json",
        "eval/{env}_eval.json",
        "eval/{env}.json",
        "{env}/{env}_test.json",
        "{env}_test.json",
        "AgentEval/{env}/{env}_test.json",
    ),
}


class PublishedError(ValueError):
    """Published item ids cannot be read; the message says what was expected."""


def published_items(env: str, split: Split = "train", source: str | Path = HUB_NAME) -> list[str]:
    """Item ids of an environment as this kit writes them (``env_number``), in the order of the list.

    ``source`` is a folder, a JSON file of that form, or the name of a data set on the hub. A list may name items by their sub-task
    (``nq_17``): the number is what counts. The numbers are AgentGym's: BabyAI and SciWorld number their items in the same way, SearchQA and
    WebArena when they are given the published questions and tasks; TextCraft numbers the goals of AgentGym's own recipe files.

    Raises ``PublishedError`` if the package ``datasets`` is missing, there is no such list, or a row is not of that form.
    """
    files, where = _locate(env, split, source)
    rows = _load(files, where, source)
    return [f"{env}_{_number(row, n, where)}" for n, row in enumerate(rows)]


def _locate(env: str, split: Split, source: str | Path) -> tuple[str, str]:
    """A file to load and its name for messages."""
    path = Path(source)
    if path.is_file():
        return str(path), str(path)
    places = [place.format(env=env) for place in _PLACES[split]]
    if path.is_dir():
        found = next((path / place for place in places if (path / place).is_file()), None)
        if found is None:
            raise PublishedError(f"expected one of {', '.join(places)} in '{path}', found none of them")
        return str(found), str(found)
    if str(source).count("/") != 1 or path.parent.exists():
        raise PublishedError(f"expected a folder, a JSON file or the name of a data set on the hub (org/name), found nothing at '{source}'")
    listed = _hub_files(str(source))
    name = next((place for place in places if place in listed), None)
    if name is None:
        raise PublishedError(f"expected one of {', '.join(places)} in the data set {source}, found {', '.join(listed[:20]) or 'nothing'}")
    return f"hf://datasets/{source}/{name}", f"{source}/{name}"


def _hub_files(name: str) -> Sequence[str]:
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError

    try:
        return HfApi().list_repo_files(name, repo_type="dataset")
    except (HfHubHTTPError, OSError, ValueError) as e:
        raise PublishedError(
            f"the data set {name} cannot be listed ({type(e).__name__}: {e!s:.200}); check the name and the network, or download it and "
            "name its folder"
        ) from e


def _load(file: str, where: str, source: str | Path) -> Sequence[Any]:
    try:
        from datasets import load_dataset
        from datasets.exceptions import DatasetsError
    except ImportError as e:
        raise PublishedError(f"reading published item ids needs the package 'datasets' ({e}); install it: pip install datasets") from e
    try:
        data = load_dataset("json", data_files=file, split="train")
    except (DatasetsError, OSError, ValueError) as e:
        raise PublishedError(f"'{where}' is not a JSON array of objects with an 'item_id' ({type(e).__name__}: {e!s:.200})") from e
    if "item_id" not in data.column_names:
        raise PublishedError(f"expected the field 'item_id' in '{where}', found {', '.join(data.column_names)}")
    rows: Sequence[Any] = data["item_id"]
    return rows


def _number(row: Any, n: int, where: str) -> int:
    last = str(row).rpartition("_")[2]
    if not (last.isascii() and last.isdecimal()):
        raise PublishedError(
            f"expected an item id that ends in a number, such as 'textcraft_31', found {row!r:.80} in row {n} of '{where}'"
        )
    return int(last)
