"""What is put in order around a task's body, in the thread whose state it is: database connections, caches.

Called by `attempt` and `slots` in slot threads, and by `berths` in the threads of asynchronous bodies.
"""

from __future__ import annotations

import logging
import threading
from time import monotonic

from django.core.cache import caches
from django.db import close_old_connections, connections, reset_queries

logger = logging.getLogger(__name__)

FRESH_S = 0.5
"""Connections do not go stale in so short a time without use."""

_last = threading.local()


def close_stale_connections() -> None:
    """As Django does around a request. A connection that cannot even be closed must not cost the outcome."""
    try:
        reset_queries()
        close_old_connections()
    except Exception:
        logger.exception("A stale database connection could not be closed")
    _last.at = monotonic()


def close_connections() -> None:
    """Closes this thread's database connections; one that cannot be closed is logged."""
    try:
        connections.close_all()
    except Exception:
        logger.exception("A database connection could not be closed")


def open_caches() -> None:
    """Makes Django's cache objects, which it keeps in the context, before bodies run in copies of it.

    Else each body would make its own, with connections of its own, and leave them.
    """
    for alias in caches.settings:
        try:
            caches[alias]
        except Exception:
            logger.debug("The cache %s cannot be made; a body that uses it will say so", alias, exc_info=True)


def close_stale_connections_since() -> None:
    """The same before a body, unless it was done just now after the body before."""
    if monotonic() - getattr(_last, "at", float("-inf")) >= FRESH_S:
        close_stale_connections()
