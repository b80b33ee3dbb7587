"""Every service of the contract has a health of its own, and is found by reflection."""

from __future__ import annotations

import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from tests.compliance.contract import METHODS, PACKAGE
from tests.compliance.wire import Api

SERVICES = sorted({f"{PACKAGE}.{method.split('/')[0]}" for method in METHODS})


@pytest.mark.parametrize("service", SERVICES)
def test_serves_by_its_own_health(api: Api, service: str) -> None:
    """Excludes a service that was added without its health, which is NOT_FOUND."""
    request = health_pb2.HealthCheckRequest(service=service)
    answer = health_pb2_grpc.HealthStub(api.channel).Check(request, timeout=10.0)
    assert answer.status == health_pb2.HealthCheckResponse.SERVING


def test_all_are_found_by_reflection(api: Api) -> None:
    """Excludes a service that was added without reflection."""
    found = ProtoReflectionDescriptorDatabase(api.channel).get_services()
    assert sorted(name for name in found if name.startswith(PACKAGE)) == SERVICES
