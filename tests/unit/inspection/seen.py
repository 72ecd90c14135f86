"""Words for the tests of the certificate."""

from __future__ import annotations

from typing import Any

from queueapp.inspection.fairness import Certificate, TenantShare, certificate
from tests.lua.harness import Shard


def seen(shard: Shard, window_s: float = 300, **options: Any) -> Certificate:
    """The certificate of the pool `default` at the moment of the shard's clock."""
    return certificate("default", window_s, now_ms=shard.now_ms, **options)


def of(found: Certificate, tenant: str) -> TenantShare:
    one = found.of(tenant)
    assert one is not None
    return one
