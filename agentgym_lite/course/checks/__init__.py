"""One check per exercise: ``checks.name(function)`` says whether the function is right and, if not, which mistake it makes.

No check shows a solution. They are grouped by lesson, a module each; a new one is imported here and listed in ``__all__``.
"""

from agentgym_lite.course.checks.agents import credited, luck, read_call, window_rows
from agentgym_lite.course.checks.check import Case, Check, CheckResult, Mistake
from agentgym_lite.course.checks.environments import answer_requests, episode_outcome, rises
from agentgym_lite.course.checks.evaluation import changed_items, independent_values, pass_at_k, success_rate, wilson_interval
from agentgym_lite.course.checks.groups import clipped_loss, group_advantages, informative, leave_one_out, signal_probability
from agentgym_lite.course.checks.policy_gradient import batch_loss, kl_k3, policy_returns, score_function, whiten
from agentgym_lite.course.checks.ppo import clipped_value_loss, explained, gae, masked_gae
from agentgym_lite.course.checks.rollouts import stop_reason, tokens_read, turn_spans, waiting
from agentgym_lite.course.checks.scaling import after_resume, paired_gain, rounds_at, updates_within
from agentgym_lite.course.checks.tables import difference, different_settings, overall, possible_counts, solved_items
from agentgym_lite.course.checks.tokens import build_row, needs_new_row, place_rewards, target_logprobs
from agentgym_lite.course.checks.trainer import best_of_group, brief, keep_best, pair_loss, ramp

__all__ = [
    "Case",
    "Check",
    "CheckResult",
    "Mistake",
    "after_resume",
    "answer_requests",
    "batch_loss",
    "best_of_group",
    "brief",
    "build_row",
    "changed_items",
    "clipped_loss",
    "clipped_value_loss",
    "credited",
    "difference",
    "different_settings",
    "episode_outcome",
    "explained",
    "gae",
    "group_advantages",
    "independent_values",
    "informative",
    "keep_best",
    "kl_k3",
    "leave_one_out",
    "luck",
    "masked_gae",
    "needs_new_row",
    "overall",
    "pair_loss",
    "paired_gain",
    "pass_at_k",
    "place_rewards",
    "policy_returns",
    "possible_counts",
    "ramp",
    "read_call",
    "rises",
    "rounds_at",
    "score_function",
    "signal_probability",
    "solved_items",
    "stop_reason",
    "success_rate",
    "target_logprobs",
    "tokens_read",
    "turn_spans",
    "updates_within",
    "waiting",
    "whiten",
    "wilson_interval",
    "window_rows",
]


def catalogue() -> dict[str, Check]:
    """All checks by name."""
    return {name: value for name, value in globals().items() if isinstance(value, Check)}
