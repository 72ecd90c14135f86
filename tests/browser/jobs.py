"""Tasks of the browser's test. They run in the test's own process and leave a trace here."""

from __future__ import annotations

from queueapp import task

ran: list[str] = []
"""Whose jobs ran, in order."""
mended = False
"""Whether the cause of the failures has been mended."""


@task
def count(tenant: str) -> None:
    ran.append(tenant)


@task
def fragile(address: str, password: str) -> str:
    """Fails until its cause is mended."""
    if not mended:
        raise ConnectionError(f"{address} does not answer")
    return "sent"


@task
def letter(address: str, copies: int, password: str) -> str:
    """Fails for want of an @."""
    if "@" not in address:
        raise ValueError(f"{address} is no address")
    ran.append(f"{copies} to {address} with {password}")
    return "sent"
