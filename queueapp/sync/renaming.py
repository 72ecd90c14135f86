"""A pool gets another name. Its code, and with it its keys and the ids of its jobs, stay.

The row of the pool is intent, the store's table of names follows it: the table first, so that no process that reads the
new name in the row looks for it under another code; and `settle`, which every repair begins with, for whatever went
wrong between the two and for rows that were renamed by SQL.

Processes that run go on under the old name, on the same keys, until they are started again. Enqueueing under the old
name is refused from now on, with a list of the pools that there are.
"""

from __future__ import annotations

import logging

from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils.translation import gettext as _

from queueapp import conf, validators
from queueapp.conf import settings
from queueapp.errors import StoreMisconfigured
from queueapp.models import OutboxEntry, Pool
from queueapp.store import shards
from queueapp.sync.delivery import within

logger = logging.getLogger(__name__)


def rename(pool: Pool, name: str) -> None:
    """Give `pool` the name `name`. Raises ValidationError for a name that cannot be, StoreError when the store is away.

    Takes a second at most. A pool that the settings name keeps its name: whoever reads them would make it anew.
    """
    validators.pool_name(name)
    old = pool.name
    if old in conf.known_pools():
        raise ValidationError(
            _(
                "The settings name the pool “%(pool)s” (TASKS, POOLS, or as the default): take it out of them first, "
                "else the next process that reads them makes a new pool of this name."
            )
            % {"pool": old}
        )
    if name == old:
        return
    if name in conf.known_pools() or Pool.objects.filter(name=name).exists():
        raise ValidationError(_("A pool of the name “%(name)s” exists already.") % {"name": name})
    try:
        within(lambda: shards.rename(pool.code, name))
    except StoreMisconfigured as error:
        raise ValidationError(str(error)) from error
    with transaction.atomic(using=settings.database):
        pool.name = name
        pool.save(update_fields=["name", "updated"])
        OutboxEntry.objects.filter(pool=old).update(pool=name)
    logger.warning("A pool was renamed", extra={"pool": name, "before": old, "pool_code": pool.code})


def settle() -> None:
    """Bring the store's table of names in line with the rows, where it has a pool under another name."""
    names = {code: name for name, code in shards.pools().items()}
    for name, code in Pool.objects.filter(code__in=names).values_list("name", "code"):
        if names[code] != name:
            try:
                shards.rename(code, name)
            except StoreMisconfigured as error:
                logger.error("A pool's row and the store disagree about its name: %s", error, extra={"pool": name})
