"""The course: checks that name a learner's mistake, student copies of the solved notebooks, and grading.

Lessons import :mod:`agentgym_lite.course.checks` and nothing else from here; ``docs/course.md`` says how a lesson is built.
"""
