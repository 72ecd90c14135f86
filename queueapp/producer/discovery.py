"""Finds tasks by name. The `tasks` modules of the installed apps are imported when a name is first needed.

Called by the worker, by REST (a task by name), by the checks and by whoever reads a job. Importing happens once per
process, under a lock. A module that cannot be imported is reported with its app and does not stop the others.
"""

from __future__ import annotations

import logging
import sys
import threading
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

from django.apps import apps
from django.conf import settings
from django.utils.module_loading import import_string, module_has_submodule

from queueapp.compat import is_task
from queueapp.errors import UnknownTask

if TYPE_CHECKING:
    from queueapp.producer.task import DuctorTask

logger = logging.getLogger(__name__)

registry: dict[str, DuctorTask] = {}
"""Name (`module.function`) and every alias → task. `@task` writes it at import; the newest definition holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokenModule:
    """A `tasks` module that could not be imported."""

    app: str
    module: str
    error: Exception


_lock = threading.RLock()
_broken: list[BrokenModule] | None = None


def load_tasks() -> list[BrokenModule]:
    """Import the `tasks` module of every installed app, once per process; returns those that are broken."""
    global _broken
    with _lock:
        if _broken is None:
            _broken = [broken for config in apps.get_app_configs() if (broken := _load(config.label, config.name))]
        return _broken


def _load(label: str, package: str) -> BrokenModule | None:
    if not module_has_submodule(sys.modules[package], "tasks"):
        return None
    module = f"{package}.tasks"
    try:
        import_module(module)
    except Exception as error:
        logger.exception("A tasks module cannot be imported", extra={"app": label, "tasks_module": module})
        return BrokenModule(app=label, module=module, error=error)
    return None


def find(name: str) -> DuctorTask:
    """The task of this name or alias. Raises UnknownTask, which names the broken module that may hold it."""
    task = registry.get(name)
    if task is not None:
        return task
    broken = list(load_tasks())
    task = registry.get(name) or _imported(name, broken)
    if task is not None:
        return task
    reasons = "".join(
        f" {item.module} (app {item.app}) cannot be imported: {type(item.error).__name__}: {item.error}."
        for item in broken
    )
    raise UnknownTask(
        f"No task is called {name!r} here. Decorate the function with @task in a module that is imported, such as the "
        f"tasks.py of an installed app; a renamed task keeps its old name with @task(aliases=[...]).{reasons}"
    )


def _imported(name: str, broken: list[BrokenModule]) -> DuctorTask | None:
    """A task outside of the `tasks` modules, or decorated by `django.tasks`, by its path. All else is refused."""
    from queueapp.producer.task import adopt

    if not _is_host_s(name.rpartition(".")[0]):
        return None
    try:
        found = import_string(name)
    except ImportError:
        return None
    except Exception as error:  # whatever a module of the host does while it is imported
        module = name.rpartition(".")[0]
        if all(item.module != module for item in broken):
            broken.append(BrokenModule(app="?", module=module, error=error))
        return None
    # The store names what to run; only what a host declared as a task may be.
    if not is_task(found):
        return None
    return registry.setdefault(name, adopt(found))


def _is_host_s(module: str) -> bool:
    """Whether a name from the store may have this module imported: one of an app, of the project's own package, or one
    that is there already. Importing runs a module, and what is merely installed or lies beside was not made for that.
    """
    if module in sys.modules:
        return True
    named = (getattr(settings, "SETTINGS_MODULE", None), getattr(settings, "ROOT_URLCONF", None))
    project = [name.partition(".")[0] for name in named if isinstance(name, str)]
    packages = [*project, *(config.name for config in apps.get_app_configs())]
    return any(module == package or module.startswith(f"{package}.") for package in packages)
