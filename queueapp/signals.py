"""Ductor's own signals. Those about a job's life (`task_enqueued`, `task_started`, `task_finished`) are django.tasks'.

Receivers are called with `send_robust`: one that raises is logged by Django and costs nobody the job.
"""

from __future__ import annotations

from django.dispatch import Signal

enqueue_failed = Signal()
"""A job that was to be sent after commit was not accepted, when the caller could no longer be told.

Sent with `sender` (the backend's class), `task_result` (the handle that the caller holds, state "deferred"),
`error` (a DuctorError), `payload` (the arguments as JSON bytes) and `kept`: True when the outbox keeps the job, or the
run of a flow whose step it is, and a scheduler sees to it; False when nothing will. A kept job that the store refuses
for good in the end is told once more, with False.
"""

pool_deleting = Signal()
"""The row of a pool is about to be deleted through the ORM; a receiver that raises keeps it.

Sent with `sender` (the model), `instance` and `using`, outside of any transaction of Django's own making.
"""

schedule_cleaning = Signal()
"""A Schedule row is being validated; a receiver adds to `faults` what is wrong with the job that it would make.

Sent with `sender` (the model), `instance` and `faults`, a dictionary: field → messages.
"""
