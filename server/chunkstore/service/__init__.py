"""The gRPC service: one servicer per service, conversion to and from the domain, errors to statuses."""
