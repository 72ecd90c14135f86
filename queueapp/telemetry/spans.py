"""OpenTelemetry: a producer span around an enqueue, a consumer span around each run.

At work when the process has a tracer provider. The consumer span continues the trace of the producer's and is linked to
it; the runs of jobs that were enqueued in bulk are traces of their own, linked to that call. Attributes follow the
semantic conventions for messaging.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from queueapp.telemetry import Delivery, Sending

BULK = "ductor-bulk"
"""Stands in the carrier of jobs that were enqueued together."""
_SYSTEM = {"messaging.system": "ductor"}


def active() -> bool:
    """Whether spans go anywhere.

    Asked for each job, also where others have imported the package and nobody has set a provider: it then looks at the
    global itself, because `get_tracer_provider` takes ten times as long to say so.
    """
    trace: Any = sys.modules.get("opentelemetry.trace")
    if trace is None or getattr(trace, "_TRACER_PROVIDER", trace) is None:
        return False
    ask = getattr(trace, "get_tracer_provider", None)  # not there while the package is being imported
    return ask is not None and type(ask()) not in (trace.ProxyTracerProvider, trace.NoOpTracerProvider)


@contextmanager
def sent(sending: Sending) -> Iterator[Callable[[str], None]]:
    """See `telemetry.sent`."""
    trace = _trace()
    attributes: dict[str, str | int] = {
        **_SYSTEM,
        "messaging.operation.type": "send",
        "messaging.operation.name": "enqueue",
        "messaging.destination.name": sending.pool,
        "ductor.task": sending.task,
    }
    if sending.jobs is not None:
        attributes["messaging.batch.message_count"] = sending.jobs
    with _tracer().start_as_current_span(
        f"enqueue {sending.pool}",
        kind=trace.SpanKind.PRODUCER,
        attributes=attributes,
        record_exception=False,
        set_status_on_exception=False,
    ) as span:
        token = _bulk(sending)
        try:
            yield lambda job_id: span.set_attribute("messaging.message.id", job_id)
        except BaseException as error:
            _fail(span, type(error).__qualname__)
            raise
        finally:
            _context().detach(token)


@contextmanager
def consumed(delivery: Delivery) -> Iterator[Callable[[str], None]]:
    """See `telemetry.consumed`."""
    trace, context = _trace(), _context()
    carried = import_module("opentelemetry.propagate").extract(delivery.carrier)
    origin = trace.get_current_span(carried).get_span_context()
    if BULK in delivery.carrier:
        carried = trace.set_span_in_context(trace.INVALID_SPAN, carried)
    token = context.attach(carried)
    try:
        with _tracer().start_as_current_span(
            f"process {delivery.pool}",
            kind=trace.SpanKind.CONSUMER,
            links=[trace.Link(origin)] if origin.is_valid else [],
            attributes={
                **_SYSTEM,
                "messaging.operation.type": "process",
                "messaging.operation.name": "process",
                "messaging.destination.name": delivery.pool,
                "messaging.message.id": delivery.job_id,
                "messaging.client.id": delivery.worker,
                "ductor.task": delivery.task,
                "ductor.tenant": delivery.tenant,
                "ductor.attempt": delivery.attempt,
                "ductor.waited_ms": delivery.waited_ms,
            },
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            yield lambda fault: _fail(span, fault) if fault else None
    finally:
        context.detach(token)


def flush(within_s: float) -> None:
    """See `telemetry.flush`. Not every provider has anything to send; ours to ask is the SDK's."""
    force = getattr(_trace().get_tracer_provider(), "force_flush", None)
    if force is not None:
        force(round(within_s * 1000))


def carrier() -> dict[str, str]:
    """What the host's propagators write of the present context, and whether it is that of a bulk call."""
    found: dict[str, str] = {}
    import_module("opentelemetry.propagate").inject(found)
    if found and _context().get_value(BULK):
        found[BULK] = "1"
    return found


def _bulk(sending: Sending) -> Any:
    """Marks the present context as that of this call, alone or in bulk: a body may enqueue either way."""
    context = _context()
    return context.attach(context.set_value(BULK, sending.jobs is not None))


def _fail(span: Any, fault: str) -> None:
    status = import_module("opentelemetry.trace.status")
    span.set_attribute("error.type", fault)
    span.set_status(status.Status(status.StatusCode.ERROR, fault))


def _tracer() -> Any:
    return _trace().get_tracer("queueapp")


def _trace() -> Any:
    return import_module("opentelemetry.trace")


def _context() -> Any:
    return import_module("opentelemetry.context")
