"""Sync repair: what the admin configured is in force in the store, also after an outage, `update()` or plain SQL."""

from __future__ import annotations

import logging

from django.db import close_old_connections

from queueapp import sync

logger = logging.getLogger(__name__)

EVERY_S = 10.0


class SyncRepair:
    """All pools, every 10 s. The first run makes rows for the pools that the settings name."""

    def __init__(self) -> None:
        self._pools_made = False

    def run(self) -> float:
        close_old_connections()
        try:
            if not self._pools_made:
                made = sync.ensure_pools()
                self._pools_made = True
                if made:
                    logger.info("Made rows for the pools of the settings", extra={"pools": made})
            sync.repair()
        finally:
            close_old_connections()
        return EVERY_S
