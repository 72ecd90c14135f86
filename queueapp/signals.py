"""Ductor's own signals. Those about a job's life (`task_enqueued`, `task_started`, `task_finished`) are django.tasks'.

Receivers are called with `send_robust`: one that raises is logged by Django and costs nobody the job.
"""

from __future__ import annotations

from django.dispatch import Signal

enqueue_failed = Signal()
"""A job that was to be sent after commit was not accepted, when the caller could no longer be told.

Sent with `sender` (the backend's class), `task_result` (the handle that the caller holds, state "deferred"),
`error` (a DuctorError) and `payload` (the arguments as JSON bytes).
"""
