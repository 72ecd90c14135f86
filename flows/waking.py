"""Wake-ups of runs: jobs of the task `flows.tasks.wake`, on a lane of their own."""

from __future__ import annotations

import logging

from flows import models
from flows.commands import stored
from flows.inputs import timer_key
from flows.snapshot import Wake
from flows.tasks import wake as wake_up
from queueapp.conf import DEFAULT_POOL
from queueapp.errors import DuctorError
from queueapp.moments import moment, now_ms
from queueapp.producer.handover import Order, hand_over, new_id
from queueapp.producer.options import UnknownQueue

logger = logging.getLogger(__name__)

WAKE_LANE = "wake"


def wake(run_id: str, pool: str = "", *, reason: str = "", requeues: int = 0, at_ms: int = 0, once: str = "") -> None:
    """Leaves a wake-up with the queue: a timer's at its moment, others now; `once` what they are for, if it is known.

    Raises what the queue refuses: the sweep finds the run.
    """
    if not pool:
        pool = models.Run.objects.filter(pk=run_id).values_list("pool", flat=True).first() or DEFAULT_POOL
    task = wake_up.using(queue_name=pool, lane=WAKE_LANE)
    key, made_ms = new_id(), now_ms()
    if at_ms:
        # Known by what it is: a timer that is set twice is there once.
        task, key, made_ms = task.using(run_after=moment(at_ms)), timer_key(run_id, reason, requeues), at_ms
    elif once:
        key, made_ms = f"{run_id}/{once}", int(once.rpartition(":")[2])
    [error] = hand_over(
        [Order(job=task.bind(run_id, reason, requeues, at_ms), key=key, at_ms=made_ms, tier="continue", system=True)]
    )
    if isinstance(error, UnknownQueue) and pool != DEFAULT_POOL:
        # The pool has been given up, and any worker can look at a run.
        return wake(run_id, DEFAULT_POOL, reason=reason, requeues=requeues, at_ms=at_ms, once=once)
    if error is not None:
        logger.warning("A wake-up was not accepted: %s", error, extra={"run": run_id, "reason": reason})
        raise error


def leave_word(run_id: str) -> None:
    """Somebody else looks at the run soon. Where the queue takes no wake-up the sweep finds a command. Never raises."""
    try:
        try:
            wake(run_id)
        except DuctorError:
            stored(run_id, [Wake()], now_ms())
    except Exception:
        logger.exception("A run waits for its watchdog: no wake-up could be left", extra={"run": run_id})
