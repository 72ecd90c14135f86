"""Schedules at work: from code to rows, from a row to a job, and the pass that makes the firings that are due.

`queueapp.firings` says when, `models.schedules` keeps it, `scheduler.duties.schedules` calls `firing` as time passes.
Nothing is imported here: `declared` is imported by `tasks` modules, which may be loaded before models can be.
"""

from __future__ import annotations


def connect() -> None:
    """Listen to the validation of rows. Called once, by the app's `ready()`."""
    from queueapp.schedules import jobs

    jobs.connect()
