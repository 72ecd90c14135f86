"""The one task that flows have of their own: a wake-up. It rides on the lane `wake` of the tenant `_ductor`."""

from __future__ import annotations

from queueapp import task


@task(max_attempts=20, max_crashes=20)
def wake(run_id: str, reason: str = "", requeues: int = 0, at_ms: int = 0) -> None:
    """One tick of a run, after what is left of earlier ones has been carried out. A second one finds nothing to do.

    `reason` and `requeues` tell which timer it is, "" = none, and `at_ms` for when it was set.
    """
    from flows import runtime
    from flows.snapshot import Timer

    runtime.look(run_id, Timer(reason=reason, requeues=requeues) if reason else None, at_ms)
