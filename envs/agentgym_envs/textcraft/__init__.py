"""TextCraft: craft a Minecraft item from a list of recipes, by text commands."""

from agentgym_envs.textcraft.env import TextCraft
from agentgym_envs.textcraft.expert import Expert, RandomAgent
from agentgym_envs.textcraft.recipes import Goal, Recipe, Recipes, Tree

__all__ = ["Expert", "Goal", "RandomAgent", "Recipe", "Recipes", "TextCraft", "Tree"]
