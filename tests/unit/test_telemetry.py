"""Spans and scopes around enqueueing and running: what they hold, and what travels with a job. Nobody else pays."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from asgiref.sync import async_to_sync

from queueapp import enqueue_many, task, telemetry
from queueapp.codec import decode_arguments, encode_arguments
from queueapp.errors import UnserialisableArgument
from queueapp.producer.preparation import prepare
from queueapp.store.reads import Reads
from queueapp.store.store import Store
from queueapp.telemetry import CARRIER_CHARACTERS, carried
from tests.working import work

otel = pytest.importorskip("opentelemetry.sdk.trace")
sentry_sdk = pytest.importorskip("sentry_sdk")

pytestmark = pytest.mark.django_db(transaction=True)
SECRET = "hunter2"


@task
def pay(card: str) -> str:
    return f"paid with {card}"


@task(max_attempts=1)
def broken(card: str) -> None:
    raise ValueError(f"no money on {card}")


@task
async def pay_asynchronously(card: str) -> None:
    pass


@task
def pays_twice(card: str) -> None:
    pay.enqueue(card)


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A tracer provider of this test: a function that gives the finished spans, in the order of their ends."""
    from opentelemetry import trace
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter, provider = InMemorySpanExporter(), otel.TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    yield lambda: list(exporter.get_finished_spans())
    provider.shutdown()


class Envelopes:
    """What would have gone to Sentry."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []

    def transactions(self) -> list[dict[str, Any]]:
        return [event for event in self.events if event.get("type") == "transaction"]


@pytest.fixture
def sentry() -> Iterator[Envelopes]:
    from sentry_sdk.transport import Transport

    seen = Envelopes()

    class Kept(Transport):
        def capture_envelope(self, envelope: Any) -> None:
            for item in envelope.items:
                if event := (item.get_transaction_event() or item.get_event()):
                    seen.events.append(event)

    sentry_sdk.init(
        dsn="https://key@sentry.invalid/1",
        transport=Kept,
        traces_sample_rate=1.0,
        default_integrations=False,
        auto_enabling_integrations=False,
    )
    yield seen
    sentry_sdk.get_client().close()
    sentry_sdk.get_global_scope().set_client(None)


def carrier_of(reads: Reads, public_id: str) -> dict[str, str]:
    record = reads.job(public_id[-22:])
    assert record is not None
    assert record.payload is not None
    return dict(carried(record.payload))


def test_nobody_who_has_none_pays_for_it(store: Store) -> None:
    assert not telemetry.active()
    assert prepare(pay, ["4711"], {}).job.payload == encode_arguments(["4711"], {})


def test_a_run_continues_the_trace_of_its_enqueue(store: Store, spans: Any) -> None:
    job = pay.using(tenant="acme").enqueue(SECRET)
    assert work() == 1
    sent, run = spans()
    assert (sent.name, sent.kind.name) == ("enqueue default", "PRODUCER")
    assert (run.name, run.kind.name) == ("process default", "CONSUMER")
    assert run.context.trace_id == sent.context.trace_id
    assert run.parent.span_id == sent.context.span_id
    assert [link.context.span_id for link in run.links] == [sent.context.span_id]
    assert sent.attributes["messaging.message.id"] == run.attributes["messaging.message.id"] == job.id
    assert run.attributes["ductor.tenant"] == "acme"
    assert run.attributes["ductor.attempt"] == 1
    assert run.status.is_ok
    assert SECRET not in sent.to_json() + run.to_json()


def test_so_does_an_asynchronous_one(store: Store, spans: Any) -> None:
    async_to_sync(pay_asynchronously.aenqueue)(SECRET)
    assert work() == 1
    sent, run = spans()
    assert run.parent.span_id == sent.context.span_id


def test_what_a_body_enqueues_stays_in_its_trace(store: Store, spans: Any) -> None:
    pays_twice.enqueue(SECRET)
    assert work() == 2
    first, second, outer, inner = spans()
    assert len({span.context.trace_id for span in (first, second, outer, inner)}) == 1
    assert second.parent.span_id == outer.context.span_id
    assert inner.parent.span_id == second.context.span_id


def test_runs_of_a_bulk_call_are_traces_of_their_own_linked_to_it(store: Store, reads: Reads, spans: Any) -> None:
    enqueue_many([pay.bind(SECRET), pay.bind(SECRET)])
    assert work() == 2
    sent, *runs = spans()
    assert sent.attributes["messaging.batch.message_count"] == 2
    assert all(run.parent is None for run in runs)
    assert len({span.context.trace_id for span in (sent, *runs)}) == 3
    assert [[link.context.span_id for link in run.links] for run in runs] == [[sent.context.span_id]] * 2


def test_a_fault_shows_as_its_class_alone(store: Store, spans: Any) -> None:
    broken.enqueue(SECRET)
    assert work() == 1
    run = spans()[-1]
    assert not run.status.is_ok
    assert run.attributes["error.type"] == "builtins.ValueError"
    assert not run.events
    assert SECRET not in run.to_json()


def test_a_refused_enqueue_shows_too(store: Store, spans: Any) -> None:
    with pytest.raises(UnserialisableArgument):
        pay.enqueue(object())  # type: ignore[arg-type]  # what is refused
    [sent] = spans()
    assert (sent.status.is_ok, sent.attributes["error.type"]) == (False, "UnserialisableArgument")


def test_the_carrier_is_no_argument_and_makes_no_conflict(store: Store, reads: Reads, spans: Any) -> None:
    first = pay.using(idempotency_key="once").enqueue("4711")
    again = pay.using(idempotency_key="once").enqueue("4711")
    assert (again.id, again.outcome) == (first.id, "exists")
    assert set(carrier_of(reads, first.id)) == {"traceparent"}
    assert first.args == ["4711"]


def test_a_host_with_large_baggage_loses_that_and_not_the_trace(spans: Any) -> None:
    from opentelemetry import baggage, context, trace

    token = context.attach(baggage.set_baggage("large", "x" * CARRIER_CHARACTERS))
    with trace.get_tracer("host").start_as_current_span("request"):
        assert set(telemetry.carrier()) == {"traceparent"}
    context.detach(token)


def test_sentry_has_a_transaction_for_each_run_that_continues_the_senders(store: Store, sentry: Envelopes) -> None:
    with sentry_sdk.start_transaction(name="request", op="http.server"):
        job = pay.using(tenant="acme").enqueue(SECRET)
    assert work() == 1
    request, run = sentry.transactions()
    [sent] = request["spans"]
    assert (sent["op"], sent["data"]["messaging.message.id"]) == ("queue.publish", job.id)
    trace = run["contexts"]["trace"]
    assert (run["transaction"], trace["op"], trace["status"]) == (f"{__name__}.pay", "queue.process", "ok")
    assert trace["trace_id"] == request["contexts"]["trace"]["trace_id"]
    assert trace["parent_span_id"] == sent["span_id"]
    assert run["tags"]["ductor.tenant"] == "acme"
    assert run["tags"]["ductor.job_id"] == job.id
    assert SECRET not in json.dumps([request, run], default=str)


def test_sentry_sees_a_fault_and_the_scope_ends_with_the_run(store: Store, sentry: Envelopes) -> None:
    broken.enqueue(SECRET)
    assert work() == 1
    [run] = sentry.transactions()
    assert run["contexts"]["trace"]["status"] == "internal_error"
    assert SECRET not in json.dumps(run, default=str)
    sentry_sdk.capture_message("afterwards")
    assert "ductor.task" not in sentry.events[-1].get("tags", {})


DELIVERY = telemetry.Delivery(
    task="shop.pay", pool="mail", job_id="j", tenant="acme", attempt=2, worker="w", waited_ms=3
)


def test_a_scope_ends_with_its_run_in_the_same_thread(sentry: Envelopes) -> None:
    with telemetry.consumed(DELIVERY):
        sentry_sdk.set_tag("theirs", "1")
    sentry_sdk.capture_message("afterwards")
    tags = sentry.events[-1].get("tags", {})
    assert not {"ductor.task", "theirs"} & set(tags)


class Slow:
    """Of both kinds: something that is sent by nobody but a flush, and then takes its time."""

    def __init__(self, gate: threading.Event | None = None) -> None:
        self.flushed: list[float] = []
        self.ended = 0
        self._gate = gate

    def force_flush(self, timeout_ms: int) -> None:
        self.flush(timeout_ms / 1000)

    def flush(self, timeout: float) -> None:
        self.flushed.append(timeout)
        if self._gate is not None:
            self._gate.wait(10)
        self.ended += 1


def test_a_flush_sends_what_was_recorded_last(spans: Any, sentry: Envelopes, monkeypatch: pytest.MonkeyPatch) -> None:
    from opentelemetry import trace
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter, sdk = InMemorySpanExporter(), Slow()
    trace.get_tracer_provider().add_span_processor(BatchSpanProcessor(exporter, schedule_delay_millis=3_600_000))  # type: ignore[attr-defined]  # the SDK's
    monkeypatch.setattr(sentry_sdk, "flush", sdk.flush)
    with telemetry.consumed(DELIVERY):
        pass
    assert exporter.get_finished_spans() == ()
    telemetry.flush(5.0)
    assert [span.name for span in exporter.get_finished_spans()] == ["process mail"]
    assert sdk.flushed == [5.0]


@pytest.mark.parametrize("kind", ["spans", "sentry"])
def test_a_flush_waits_for_nobody_longer_than_it_may(
    spans: Any, sentry: Envelopes, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """An exporter that does not keep to its time-out is left behind."""
    gate = threading.Event()
    slow, quick = Slow(gate), Slow()
    from opentelemetry import trace

    monkeypatch.setattr(trace, "_TRACER_PROVIDER", slow if kind == "spans" else quick)
    monkeypatch.setattr(sentry_sdk, "flush", (slow if kind == "sentry" else quick).flush)
    telemetry.flush(0.05)
    assert slow.ended == 0
    assert slow.flushed == quick.flushed == [0.05]
    gate.set()


def test_a_flush_that_fails_is_no_fault_of_the_process(
    sentry: Envelopes, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(timeout: float) -> None:
        raise OSError("no route")

    monkeypatch.setattr(sentry_sdk, "flush", refuse)
    telemetry.flush(5.0)
    assert "could not be sent" in caplog.text


def test_a_provider_that_has_nothing_to_flush_is_asked_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from opentelemetry import trace

    monkeypatch.setattr(trace, "_TRACER_PROVIDER", object())
    telemetry.flush(5.0)
    assert caplog.text == ""


def test_nobody_who_has_none_waits_for_a_flush(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading.Thread, "start", lambda self: pytest.fail("nothing to flush"))
    telemetry.flush(5.0)


def test_what_escapes_from_a_run_is_not_quoted(spans: Any) -> None:
    with pytest.raises(ValueError, match=SECRET), telemetry.consumed(DELIVERY):
        raise ValueError(SECRET)
    [run] = spans()
    assert SECRET not in run.to_json()


def test_without_sampling_only_the_trace_travels(store: Store, reads: Reads, sentry: Envelopes) -> None:
    sentry_sdk.get_client().options["traces_sample_rate"] = None
    assert set(carrier_of(reads, pay.enqueue("4711").id)) == {"sentry-trace"}


def test_both_at_once_share_the_baggage(store: Store, reads: Reads, spans: Any, sentry: Envelopes) -> None:
    from opentelemetry import baggage, context

    token = context.attach(baggage.set_baggage("who", "host"))
    with sentry_sdk.start_transaction(name="request"):
        found = carrier_of(reads, pay.enqueue("4711").id)
    context.detach(token)
    assert set(found) == {"traceparent", "sentry-trace", "baggage"}
    assert found["baggage"].startswith("who=host,sentry-")
    assert work() == 1
    assert len(spans()) == 2
    assert len(sentry.transactions()) == 2


@pytest.mark.parametrize(
    "payload", [b'{"a":["\\"trace\\""]}', b'{"o":{"trace":3}}', b'"trace"', b'{"o":{"trace":{"a":1}}}']
)
def test_what_is_no_carrier_is_none(payload: bytes) -> None:
    assert carried(payload) == {}


def test_the_carrier_stands_among_the_options(spans: Any) -> None:
    with telemetry.sent(telemetry.Sending(task="t", pool="p")):
        payload = prepare(pay, ["4711"], {}).job.payload
    assert set(decode_arguments(payload)[2]) == {"trace"}
