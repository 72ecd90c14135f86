"""Ductor: a multi-tenant fair job queue for Django. These names are the public ones; nothing else is promised.

They are imported when first used, so that `from queueapp import task` works in any tasks.py and `import queueapp` costs
nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from queueapp import errors, signals
    from queueapp.producer import backoff
    from queueapp.producer.backoff import Retry
    from queueapp.producer.bulk import Outcome, aenqueue_many, enqueue_many
    from queueapp.producer.children import ChildOutcome, Children
    from queueapp.producer.concurrency import Key
    from queueapp.producer.flows import Tree, add_children, aenqueue_flow, enqueue_flow
    from queueapp.producer.once import Debounce, Singleton
    from queueapp.producer.task import task
    from queueapp.producer.tenancy import current_tenant, tenant
    from queueapp.schedules.declared import schedule

__all__ = [
    "ChildOutcome",
    "Children",
    "Debounce",
    "Key",
    "Outcome",
    "Retry",
    "Singleton",
    "Tree",
    "add_children",
    "aenqueue_flow",
    "aenqueue_many",
    "backoff",
    "current_tenant",
    "enqueue_flow",
    "enqueue_many",
    "errors",
    "schedule",
    "signals",
    "task",
    "tenant",
]

_HOMES = {
    "ChildOutcome": "queueapp.producer.children:ChildOutcome",
    "Children": "queueapp.producer.children:Children",
    "Debounce": "queueapp.producer.once:Debounce",
    "Key": "queueapp.producer.concurrency:Key",
    "Outcome": "queueapp.producer.bulk:Outcome",
    "Retry": "queueapp.producer.backoff:Retry",
    "Singleton": "queueapp.producer.once:Singleton",
    "Tree": "queueapp.producer.flows:Tree",
    "add_children": "queueapp.producer.flows:add_children",
    "aenqueue_flow": "queueapp.producer.flows:aenqueue_flow",
    "aenqueue_many": "queueapp.producer.bulk:aenqueue_many",
    "backoff": "queueapp.producer.backoff",
    "current_tenant": "queueapp.producer.tenancy:current_tenant",
    "enqueue_flow": "queueapp.producer.flows:enqueue_flow",
    "enqueue_many": "queueapp.producer.bulk:enqueue_many",
    "errors": "queueapp.errors",
    "schedule": "queueapp.schedules.declared:schedule",
    "signals": "queueapp.signals",
    "task": "queueapp.producer.task:task",
    "tenant": "queueapp.producer.tenancy:tenant",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, _, attribute = _HOMES[name].partition(":")
    found = import_module(module)
    value = globals()[name] = getattr(found, attribute) if attribute else found
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
