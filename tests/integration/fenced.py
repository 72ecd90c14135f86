"""A task that writes a fenced row of the host's, when the test says so."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from django.db import models

from queueapp import task
from queueapp.errors import StaleWriter
from queueapp.fencing import FencedModel, fenced_update
from tests.integration.jobs import PATIENCE_S, POLL_S, note


class Account(FencedModel):
    balance = models.IntegerField(default=0)

    class Meta:
        app_label = "tests_fenced"
        db_table = "tests_fenced_account"


@task(takes_context=True, max_crashes=5)
def pay_in(context: Any, place: str) -> None:
    """Reads, waits for the file that its lease names, writes."""
    account = Account.objects.get()
    note(place, f"read-{context.fence}")
    deadline = time.monotonic() + PATIENCE_S
    while not Path(place, f"go-{context.fence}").exists() and time.monotonic() < deadline:
        time.sleep(POLL_S)
    try:
        fenced_update(account, context.fence, balance=account.balance + context.fence)
    except StaleWriter:
        note(place, "refused")
        raise
    note(place, f"written-{context.fence}")
