"""What is reported of a run: the error record, whether and when to try again, the growing delay of an unknown task.

Called in slot threads, from `attempt.run_one`. Pure but for the settings.
"""

from __future__ import annotations

import json
import logging
import random
import traceback

from queueapp.conf import settings
from queueapp.producer.task import DuctorTask
from queueapp.store.records import Failed, LeasedJob, Returned
from queueapp.worker.fingerprint import fingerprint

logger = logging.getLogger(__name__)

TRACEBACK_BYTES = 16 * 1024
MESSAGE_CHARACTERS = 2000
CHAIN_MAX = 20
HIDDEN_MESSAGE = "(hidden: the task is sensitive)"
CUT = "\n[… cut …]\n"
UNKNOWN_DELAY_MS = 1000
UNKNOWN_DELAY_MAX_MS = 60_000


def class_path(error: BaseException) -> str:
    return f"{type(error).__module__}.{type(error).__qualname__}"


def traceback_text(error: BaseException, *, messages: bool = True) -> str:
    """The traceback without locals, at most 16 KiB: its beginning and more of its end, which says what happened.

    Without `messages` it has the frames and classes alone: an exception may quote the value that it stumbled over.
    """
    try:
        text = "".join(traceback.format_exception(error)) if messages else _frames(error)
    except Exception:
        # A broken __str__ or __cause__ of somebody's exception must not cost the outcome.
        text = f"{class_path(error)}: its traceback could not be written"
    encoded = text.encode(errors="replace")
    if len(encoded) <= TRACEBACK_BYTES:
        return text
    head = encoded[: TRACEBACK_BYTES // 4].decode(errors="ignore")
    tail = encoded[-(TRACEBACK_BYTES * 3 // 4 - len(CUT.encode())) :].decode(errors="ignore")
    return head + CUT + tail


def _frames(error: BaseException) -> str:
    links: list[str] = []
    link: BaseException | None = error
    while link is not None and len(links) < CHAIN_MAX:
        frames = "".join(traceback.format_tb(link.__traceback__))
        links.append(f"Traceback (most recent call last):\n{frames}{class_path(link)}: {HIDDEN_MESSAGE}\n")
        earlier = None if link.__suppress_context__ else link.__context__
        link = link.__cause__ if link.__cause__ is not None else earlier
    return "\nwhich led to:\n\n".join(reversed(links))


def error_record(error: BaseException, text: str, *, messages: bool = True) -> bytes:
    """JSON with `class`, `message` and `traceback`."""
    try:
        message = str(error) if messages else HIDDEN_MESSAGE
    except Exception:
        message = "(its message could not be written)"
    record = {"class": class_path(error), "message": message[:MESSAGE_CHARACTERS], "traceback": text}
    return json.dumps(record, ensure_ascii=True).encode()


def retry_ms(task: DuctorTask, job: LeasedJob, error: BaseException) -> int | None:
    """The delay before another attempt; None when the budget is spent or the task's backoff asks for no other."""
    errors = job.errors + 1
    if errors >= job.max_attempts:
        return None
    try:
        delay_s = task.retry_delay(error, errors)
    except Exception:
        # With what the backoff raised, the log has what the task raised.
        facts = {"job_id": job.id, "task": job.task}
        logger.error("A backoff raised; trying again after 5 s", extra=facts, exc_info=task.sensitive is not True)
        delay_s = 5.0
    return None if delay_s is None else max(0, round(delay_s * 1000))


def failed(
    task: DuctorTask, job: LeasedJob, error: BaseException, text: str, run_ms: int, cost: float, *, last: bool = False
) -> Failed:
    """A body that raised. `last`: no other attempt is wanted, whatever the budget."""
    return Failed(
        id=job.id,
        attempts=job.attempts,
        run_ms=run_ms,
        error=error_record(error, text, messages=task.sensitive is not True),
        retry_ms=None if last else retry_ms(task, job, error),
        fingerprint=fingerprint(job.task, class_path(error), error),
        cost=cost,
    )


def unknown_task(job: LeasedJob) -> Returned:
    """A job whose task this process does not know: back, unrun, each time for twice as long, up to a minute."""
    delay_ms = min(UNKNOWN_DELAY_MAX_MS, UNKNOWN_DELAY_MS * 2 ** min(job.attempts - 1, 16))
    return Returned(
        id=job.id,
        attempts=job.attempts,
        delay_ms=round(delay_ms * random.uniform(0.75, 1.0)),
        unknown_task=True,
        grace_ms=settings.unknown_task_grace_ms,
    )
