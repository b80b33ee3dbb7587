"""Whose call it is: the tenant of the running call, known to its handler and never taken from a message."""

from __future__ import annotations

from contextvars import ContextVar

from chunkstore.domain.text import TenantId

TENANT_METADATA_KEY = "x-tenant-id"

_tenant: ContextVar[TenantId] = ContextVar("tenant")


def enter_tenant(tenant_id: TenantId) -> None:
    """Make `tenant_id` the tenant of the running call."""
    _tenant.set(tenant_id)


def current_tenant() -> TenantId:
    """The tenant of the running call. Raises LookupError outside one."""
    return _tenant.get()
