"""Handlers are made once for each method that is served, and never for names that callers make up."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from chunkstore.service.interceptors.once import OncePerMethodInterceptor


def _call(method: str) -> Any:
    return SimpleNamespace(method=method, invocation_metadata=())


async def test_a_method_s_handler_is_made_once() -> None:
    interceptor, made = OncePerMethodInterceptor(), list[str]()

    async def continuation(details: Any) -> Any:
        made.append(details.method)
        return f"handler of {details.method}"

    handlers: list[Any] = [
        await interceptor.intercept_service(continuation, _call(method)) for method in ("/a", "/b", "/a", "/a")
    ]
    assert handlers == ["handler of /a", "handler of /b", "handler of /a", "handler of /a"]
    assert made == ["/a", "/b"]


async def test_a_method_that_is_not_served_is_asked_for_each_time() -> None:
    """Excludes a memory of made-up names, which grows without end."""
    interceptor, asked = OncePerMethodInterceptor(), list[str]()

    async def continuation(details: Any) -> None:
        asked.append(details.method)

    for _ in range(3):
        assert await interceptor.intercept_service(continuation, _call("/made-up")) is None
    assert asked == ["/made-up"] * 3
    assert not interceptor._handlers
