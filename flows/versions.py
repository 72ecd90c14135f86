"""Which definition a run goes on with, and which flows there are.

A run keeps to the definition it began with, as a row has it; `current` is what the code declares today. Flows are
declared in the `flows` modules of the installed apps, which are imported when one is first asked for by name.
"""

from __future__ import annotations

import logging
import sys
import threading
from importlib import import_module

from django.apps import apps
from django.utils.module_loading import module_has_submodule

from flows import declaring
from flows.declaring import Flow
from flows.definition import Definition, from_json
from flows.errors import UnknownFlow
from flows.models import FlowVersion
from queueapp.errors import UnknownTask
from queueapp.producer.discovery import BrokenModule, find, load_tasks

logger = logging.getLogger(__name__)

_stored: dict[tuple[str, str], Definition] = {}
_whole: set[tuple[str, str]] = set()
"""Definitions (flow, version) whose tasks and flows are all here."""
_lock = threading.RLock()
_broken: list[BrokenModule] | None = None


def load_flows() -> list[BrokenModule]:
    """Imports the `flows` modules of the installed apps, once per process; returns those that are broken."""
    global _broken
    with _lock:
        if _broken is None:
            load_tasks()
            _broken = [broken for config in apps.get_app_configs() if (broken := _load(config.label, config.name))]
        return _broken


def _load(label: str, package: str) -> BrokenModule | None:
    if package == "flows" or not module_has_submodule(sys.modules[package], "flows"):
        return None
    module = f"{package}.flows"
    try:
        import_module(module)
    except Exception as error:
        logger.exception("A flows module cannot be imported", extra={"app": label, "flows_module": module})
        return BrokenModule(app=label, module=module, error=error)
    return None


def current(name: str) -> Flow[...]:
    """The flow of this name as it is declared. Raises UnknownFlow."""
    if name not in declaring.registry:
        load_flows()
    try:
        return declaring.registry[name]
    except KeyError:
        known = ", ".join(sorted(declaring.registry)) or "none"
        reasons = "".join(
            f" {item.module} (app {item.app}) cannot be imported: {type(item.error).__name__}: {item.error}."
            for item in load_flows()
        )
        raise UnknownFlow(
            f"No flow {name!r} is declared here; known: {known}. Flows are declared in flows.py of an installed "
            f"app.{reasons}"
        ) from None


def keep(definition: Definition) -> None:
    """Sees to it that runs of this definition find it again. Looked up each time: a start may be rolled back, and a
    database be restored, or emptied by a test."""
    name, version = definition.name, definition.version
    if not FlowVersion.objects.filter(flow=name, version=version).exists():
        rows = [FlowVersion(flow=name, version=version, definition=definition.to_json())]
        FlowVersion.objects.bulk_create(rows, ignore_conflicts=True)


def definition_of(flow: str, version: str) -> Definition:
    """The definition that a run began with. Raises UnknownFlow where its row is gone, InvalidValue for a later form."""
    found = _declared(flow, version) or _stored.get((flow, version))
    if found is None:
        row = FlowVersion.objects.filter(flow=flow, version=version).values_list("definition", flat=True).first()
        if row is not None:
            found = _stored[flow, version] = from_json(row)
    if found is None:
        load_flows()  # what is not stored may be what the code declares today
        found = _declared(flow, version)
    if found is None:
        raise UnknownFlow(f"Version {version} of flow {flow!r} is not stored any more: its runs cannot go on.")
    return found


def _declared(flow: str, version: str) -> Definition | None:
    declared = declaring.registry.get(flow)
    return declared.definition if declared is not None and declared.definition.version == version else None


def gone(definition: Definition) -> frozenset[str]:
    """The tasks and flows of the definition that this process does not have. What is gone is looked for anew each time:
    it may be imported later."""
    key = definition.name, definition.version
    if key in _whole:
        return frozenset()
    flows = {step.target for step in definition.steps if step.kind == "flow" or step.runs_flow}
    found = frozenset(
        {name for name in definition.tasks() if not _is_there(name)}
        | {name for name in flows if not _is_declared(name)}
    )
    if not found:
        _whole.add(key)
    return found


def _is_declared(name: str) -> bool:
    try:
        current(name)
    except UnknownFlow:
        return False
    return True


def _is_there(name: str) -> bool:
    try:
        find(name)
    except UnknownTask:
        return False
    return True
