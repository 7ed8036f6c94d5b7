"""Errors of training."""


class TrainingError(RuntimeError):
    """Training cannot go on; the message says what was found and what to do."""
