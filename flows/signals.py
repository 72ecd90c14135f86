"""What hosts may listen to. Receivers are called with `send_robust`, in the process that ended the run."""

from __future__ import annotations

from django.dispatch import Signal

run_finished = Signal()
"""A run has ended, or ended again after a resume. Sent with `sender` (the model Run) and `run`, its row: `run.state`,
`run.output`, `run.cause`. Where a process dies in between it is sent by whoever goes on, perhaps a second time. What a
receiver enqueues belongs to the run's tenant, whoever's job it was that ended the run.
"""
