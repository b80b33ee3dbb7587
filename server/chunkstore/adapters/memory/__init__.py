"""The in-memory twin of the chunk store."""
