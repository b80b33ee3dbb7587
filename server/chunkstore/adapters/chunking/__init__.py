"""Chunkers over text-splitting libraries."""
