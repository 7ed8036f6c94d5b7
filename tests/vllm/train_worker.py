"""One of several processes that train the toy policy with vLLM in each: ``train_worker.py OUT``; prints its metrics as JSON."""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "unit"))

from trainer_factory import make_config, make_tokenizer, register
from vllm_factory import policy

from agentgym_lite.training import Trainer

register()
settings = {"rollout": {"engine": "vllm"}, "run": {"steps": 2}, "algorithm": {"zero_variance": "keep"}, "model": {"device": "cpu"}}
trainer = Trainer(make_config(Path(sys.argv[1]), **settings), model=policy(), tokenizer=make_tokenizer())
history = trainer.train().history
trainer.world.close()
print(json.dumps([{name: m[name] for name in ("optim/updates", "engine/logp_diff_max", "loss/total")} for m in history]))
