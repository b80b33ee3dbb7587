"""Exact in-memory ranking of one tenant's corpus."""
