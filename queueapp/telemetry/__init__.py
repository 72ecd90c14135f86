"""Spans around enqueueing and running, for OpenTelemetry (`spans`) and Sentry (`sentry`), as far as a host has them.

Neither is a dependency, and neither is imported here: a host that wants one has imported and configured it, which costs
the others a look into `sys.modules` a job. What continues a trace travels with the job, among the options of its
payload, and only while one of them is at work. Spans and tags hold names and numbers, never arguments, results or what
an exception says.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

from queueapp.codec import decode_arguments
from queueapp.telemetry import sentry, spans

logger = logging.getLogger(__name__)

OPTION = "trace"
"""Where the carrier stands among the options of a payload."""
CARRIER_CHARACTERS = 1_000
"""A carrier that is longer leaves out what is longest: a host's baggage."""
FLUSH_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sending:
    """One call of a producer."""

    task: str
    """The first one's, where `jobs` are several."""
    pool: str
    jobs: int | None = None
    """How many the call has; None for one that was enqueued alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """One run of a job."""

    task: str
    pool: str
    job_id: str
    tenant: str
    attempt: int
    worker: str
    waited_ms: int
    carrier: Mapping[str, str] = field(default_factory=dict)


def active() -> bool:
    """Whether anybody wants to know."""
    return spans.active() or sentry.active()


def flush(within_s: float = FLUSH_S) -> None:
    """Has what was recorded last sent, for a process that leaves without the interpreter's own end. Never raises.

    Returns after `within_s` at the latest: an exporter that does not keep to it is left behind in a thread of its own.
    """
    end = monotonic() + within_s
    flushing = [
        threading.Thread(target=_flush, args=(each.flush, within_s), name="ductor-flush", daemon=True)
        for each in (spans, sentry)
        if each.active()
    ]
    for thread in flushing:
        thread.start()
    for thread in flushing:
        thread.join(max(0.0, end - monotonic()))


def _flush(flush: Callable[[float], None], within_s: float) -> None:
    try:
        flush(within_s)
    except Exception:
        logger.warning("What was recorded last for a trace could not be sent", exc_info=True)


@contextmanager
def sent(sending: Sending) -> Iterator[Callable[[str], None]]:
    """Around an enqueue, while `active`. What is called with the id of the job that was accepted."""
    with ExitStack() as stack:
        tellers = [stack.enter_context(each.sent(sending)) for each in (spans, sentry) if each.active()]

        def told(job_id: str) -> None:
            for tell in tellers:
                tell(job_id)

        yield told


@contextmanager
def consumed(delivery: Delivery) -> Iterator[Callable[[str], None]]:
    """Around a run, while `active`. What is called with the class of its fault, "" for none."""
    with ExitStack() as stack:
        tellers = [stack.enter_context(each.consumed(delivery)) for each in (spans, sentry) if each.active()]

        def told(fault: str) -> None:
            for tell in tellers:
                tell(fault)

        yield told


def carrier() -> dict[str, str]:
    """What continues the present trace elsewhere; empty when nobody wants to know."""
    found: dict[str, str] = {}
    for each in (spans, sentry):
        if each.active():
            for name, value in each.carrier().items():
                # Both have a part in `baggage`, a list.
                found[name] = f"{found[name]},{value}" if name in found else value
    while sum(map(len, found.values())) > CARRIER_CHARACTERS:
        del found[max(found, key=lambda name: len(found[name]))]
    return found


def carried(payload: bytes) -> Mapping[str, str]:
    """The carrier of a job."""
    if b'"trace"' not in payload:
        return {}
    try:
        found: Any = decode_arguments(payload)[2].get(OPTION)
    except ValueError:
        return {}
    if not isinstance(found, dict):
        return {}
    return {name: value for name, value in found.items() if isinstance(value, str)}
