"""The one bridge from SQL to the store: what people configured in the models comes into force here.

After a Pool, TenantLimits or KeyLimit was saved or deleted, and its transaction has committed, one try carries the
change over (`delivery`). It takes at most a second, whatever the store does, and never fails the save. `repair`, which
every scheduler calls every ten seconds, compares both sides and rewrites what differs (`comparison`); so it finds what
a try could not deliver, and `QuerySet.update()`, `bulk_create`, `loaddata` and plain SQL, which send no signal.

Every write carries a version, and the store refuses one older than what it has. A version is always taken *before* the
rows are read: whoever comes later with a larger one has read rows at least as new, so that an old value never
overwrites a newer one, in whatever order two processes arrive.
"""

from __future__ import annotations

from queueapp.sync import delivery, guard
from queueapp.sync.comparison import repair
from queueapp.sync.delivery import overview, seen_pools
from queueapp.sync.guard import Kept, kept
from queueapp.sync.intent import ensure_pools
from queueapp.sync.pausing import Paused, pause, resume
from queueapp.sync.renaming import rename

__all__ = [
    "Kept",
    "Paused",
    "connect",
    "ensure_pools",
    "kept",
    "overview",
    "pause",
    "rename",
    "repair",
    "resume",
    "seen_pools",
]


def connect() -> None:
    """Listen to the models. Called once, by the app's `ready()`."""
    delivery.connect()
    guard.connect()
