"""Where models come from: the shipped tiny base model, a local folder, or a name on the model hub."""

from __future__ import annotations

from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

#: The name under which the shipped base model is known.
TINY = "tiny"
#: Type of the weights by the name of a ``dtype``; ``mixed`` computes updates in bfloat16 (``training.loop``).
_DTYPES = {"float32": "float32", "bfloat16": "bfloat16", "mixed": "float32"}


class ModelError(RuntimeError):
    """A model that cannot be loaded; the message says what was looked for and what to do."""


def model_dir(path: str | Path) -> str:
    """Folder (or hub name) that ``path`` stands for; ``"tiny"`` is ``data/models/tiny`` of the checkout.

    Raises ``ModelError`` if ``path`` looks like a local folder and holds no model.
    """
    if str(path) == TINY:
        folder = Path(__file__).resolve().parents[1] / "data" / "models" / TINY
    else:
        folder = Path(path).expanduser()
        looks_local = folder.exists() or str(path).startswith((".", "/", "~")) or str(path).count("/") > 1
        if not looks_local:
            return str(path)  # a hub name such as Qwen/Qwen2.5-3B-Instruct
    if not (folder / "config.json").is_file():
        raise ModelError(f"expected a model folder with config.json at '{folder}', found none; give 'tiny', a saved model or a hub name")
    return str(folder)


def load_model(path: str | Path = TINY, dtype: str = "float32") -> Any:
    """A causal LM (``transformers``) in ``dtype``, in eval mode. Raises ``ModelError``."""
    if dtype not in _DTYPES:
        raise ModelError(f"expected dtype {', '.join(_DTYPES)}, found {dtype!r}")
    torch = import_module("torch")
    return _load("AutoModelForCausalLM", path, dtype=getattr(torch, _DTYPES[dtype])).eval()


def checkpoint_layers(model: Any) -> None:
    """Let the decoder's layers compute their activations again in the backward pass instead of keeping them.

    Not by the switch of transformers, which has no effect on a model in evaluation mode. Safe to call twice.
    """
    checkpoint = import_module("torch.utils.checkpoint").checkpoint
    for layer in model.get_decoder().layers:
        if not isinstance(layer.forward, partial):
            layer.forward = partial(checkpoint, layer.forward, use_reentrant=False, preserve_rng_state=False)


def load_tokenizer(path: str | Path = TINY) -> Any:
    """The tokenizer saved beside the model. Raises ``ModelError``."""
    return _load("AutoTokenizer", path)


def _load(auto_class: str, path: str | Path, **options: Any) -> Any:
    where = model_dir(path)
    transformers = import_module("transformers")
    transformers.utils.logging.disable_progress_bar()  # a bar per file says nothing about models of this size
    try:
        return getattr(transformers, auto_class).from_pretrained(where, **options)
    except (OSError, ValueError, KeyError, SafetensorError) as e:  # SafetensorError: a file cut off in the middle
        raise ModelError(f"cannot load '{where}' with {auto_class}: {str(e).splitlines()[0]:.300}") from None
