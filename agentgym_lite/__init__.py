"""AgentGym-Lite: learn, teach and reproduce multi-turn reinforcement learning of LLM agents."""

__version__ = "0.1.0"
