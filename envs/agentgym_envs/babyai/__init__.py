"""BabyAI: instruction following in minigrid's partially seen rooms, in text with macro actions."""

from agentgym_envs.babyai.env import BabyAI

__all__ = ["BabyAI"]
