"""What a run will need before it starts: memory per device, tokens and hours per step."""

from agentgym_lite.plan.memory import Item, Machine, Memory, plan_memory
from agentgym_lite.plan.model import KNOWN_MODELS, ModelFacts, PlanError, model_facts
from agentgym_lite.plan.plan import Plan, make_plan
from agentgym_lite.plan.work import Stage, Throughput, Work, measured, plan_work

__all__ = [
    "KNOWN_MODELS",
    "Item",
    "Machine",
    "Memory",
    "ModelFacts",
    "Plan",
    "PlanError",
    "Stage",
    "Throughput",
    "Work",
    "make_plan",
    "measured",
    "model_facts",
    "plan_memory",
    "plan_work",
]
