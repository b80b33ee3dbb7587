"""Development tenancy: the tenant is what the caller's metadata says, which only a loopback address may allow."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc

from chunkstore.domain.text import checked_tenant_id
from chunkstore.service.interceptors.around import Context, Continuation, Handler, around_calls, is_open
from chunkstore.service.tenancy import TENANT_METADATA_KEY, enter_tenant


class DevelopmentTenancyInterceptor(grpc.aio.ServerInterceptor):
    """Takes the tenant from the metadata key x-tenant-id; missing or malformed is InvalidTenantError."""

    async def intercept_service(
        self, continuation: Continuation, handler_call_details: grpc.HandlerCallDetails
    ) -> Handler | None:
        """See grpc.aio.ServerInterceptor."""
        handler = await continuation(handler_call_details)
        if handler is None or is_open(handler_call_details.method):
            return handler
        return around_calls(handler, _enter)


@asynccontextmanager
async def _enter(_: object, context: Context) -> AsyncIterator[None]:
    values = [value for key, value in context.invocation_metadata() or () if key == TENANT_METADATA_KEY]
    supplied = values[0] if len(values) == 1 and isinstance(values[0], str) else None
    enter_tenant(checked_tenant_id(supplied, TENANT_METADATA_KEY))
    yield
