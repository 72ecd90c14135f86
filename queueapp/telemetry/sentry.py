"""Sentry: a span around an enqueue, a scope and a transaction of its own around each run, with the job in its tags.

At work when the process has called `sentry_sdk.init`. What raised in a body is reported by Sentry's own logging
integration, from django.tasks' log line, and lands in the run's scope.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from queueapp.telemetry import Delivery, Sending

ORIGIN = "auto.queue.ductor"


def active() -> bool:
    """Whether Sentry was initialised in this process."""
    is_initialized = getattr(sys.modules.get("sentry_sdk"), "is_initialized", None)
    return is_initialized is not None and bool(is_initialized())


@contextmanager
def sent(sending: Sending) -> Iterator[Callable[[str], None]]:
    """See `telemetry.sent`."""
    with _sdk().start_span(op="queue.publish", name=sending.task, origin=ORIGIN) as span:
        span.set_data("messaging.system", "ductor")
        span.set_data("messaging.destination.name", sending.pool)
        if sending.jobs is not None:
            span.set_data("messaging.batch.message_count", sending.jobs)
        yield lambda job_id: span.set_data("messaging.message.id", job_id)


@contextmanager
def consumed(delivery: Delivery) -> Iterator[Callable[[str], None]]:
    """See `telemetry.consumed`."""
    sdk = _sdk()
    with sdk.isolation_scope() as scope:
        scope.clear_breadcrumbs()
        tags = {
            "ductor.task": delivery.task,
            "ductor.pool": delivery.pool,
            "ductor.tenant": delivery.tenant,
            "ductor.job_id": delivery.job_id,
            "ductor.attempt": delivery.attempt,
        }
        for name, value in tags.items():
            scope.set_tag(name, value)
        transaction = sdk.continue_trace(
            dict(delivery.carrier), op="queue.process", name=delivery.task, source="task", origin=ORIGIN
        )
        with sdk.start_transaction(transaction) as span:
            span.set_data("messaging.system", "ductor")
            span.set_data("messaging.destination.name", delivery.pool)
            span.set_data("messaging.message.id", delivery.job_id)
            span.set_data("messaging.message.retry.count", delivery.attempt - 1)
            span.set_data("messaging.message.receive.latency", delivery.waited_ms)
            span.set_status("ok")
            yield lambda fault: span.set_status("internal_error") if fault else None


def flush(within_s: float) -> None:
    """See `telemetry.flush`."""
    _sdk().flush(timeout=within_s)


def carrier() -> dict[str, str]:
    """The trace, and where traces are sampled what is known of it."""
    sdk = _sdk()
    found = {"sentry-trace": sdk.get_traceparent()}
    options = sdk.get_client().options
    if options.get("traces_sample_rate") is not None or options.get("traces_sampler") is not None:
        found["baggage"] = sdk.get_baggage()
    return {name: value for name, value in found.items() if value}


def _sdk() -> Any:
    return sys.modules["sentry_sdk"]
