"""How the tiny base model was made: corpus, tokenizer, initialisation and training. ``python -m agentgym_lite.training.pretrain``."""
