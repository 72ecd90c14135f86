"""Those of `process_settings` in a host that has OpenTelemetry and Sentry, neither of which sends by itself.

What either would have sent goes to a file below `TEST_TRACES`, at a flush and not before; nothing is flushed at the
interpreter's end.
"""

import os
from pathlib import Path
from typing import Any

import sentry_sdk
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter
from sentry_sdk.transport import Transport

from tests.integration.process_settings import *  # noqa: F403  (all of them)

TRACES = Path(os.environ["TEST_TRACES"])


class Kept(Transport):
    """Writes the names of its transactions when it is flushed."""

    def __init__(self, options: Any = None) -> None:
        super().__init__(options)
        self.kept: list[str] = []

    def capture_envelope(self, envelope: Any) -> None:
        event = envelope.get_transaction_event()
        if event is not None:
            self.kept.append(event["transaction"])

    def flush(self, timeout: float, callback: Any = None) -> None:
        (TRACES / "sentry").write_text("\n".join(self.kept))


sentry_sdk.init(
    dsn="https://key@sentry.invalid/1",
    transport=Kept,
    traces_sample_rate=1.0,
    default_integrations=False,
    auto_enabling_integrations=False,
)
provider = TracerProvider(shutdown_on_exit=False)
provider.add_span_processor(
    BatchSpanProcessor(
        ConsoleSpanExporter(out=(TRACES / "spans").open("w"), formatter=lambda span: span.name + "\n"),
        schedule_delay_millis=3_600_000,
    )
)
trace.set_tracer_provider(provider)
