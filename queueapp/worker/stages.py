"""How far a worker has got on its way from working to gone."""

from __future__ import annotations

from enum import IntEnum


class Stage(IntEnum):
    """A worker's. It never goes back."""

    WORKING = 0
    RETIRING = 1
    """Leases nothing more; what runs may end."""
    DRAINING = 2
    """Leases nothing more; what runs may end within the grace."""
    LEAVING = 3
    """Gives back whatever it still holds, and ends."""
