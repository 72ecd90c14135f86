"""Flows: durable runs over Ductor's queue. These names are the public ones; nothing else is promised.

@flow(on_failure="stop")
def import_upload(upload_id: int):
    rows = step(read_file, upload_id)
    checked = step(validate, rows)
    chunks = map_step(import_chunk, checked["chunks"], max_parallel=16, retries=3)
    return step(report, upload_id, chunks.counts)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from flows.declaring import Flow, flow, map_step, sleep, step, wait_for
from flows.values import either

if TYPE_CHECKING:
    from flows.handle import RunHandle, get_run, send_event
    from flows.signals import run_finished
    from flows.steps import current_step

__all__ = [
    "Flow",
    "RunHandle",
    "current_step",
    "either",
    "flow",
    "get_run",
    "map_step",
    "run_finished",
    "send_event",
    "sleep",
    "step",
    "wait_for",
]

_HOMES = {
    "RunHandle": "flows.handle",
    "current_step": "flows.steps",
    "get_run": "flows.handle",
    "run_finished": "flows.signals",
    "send_event": "flows.handle",
}
"""What needs the apps to be ready: imported when first used."""


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
