"""What the product needs from the outside: a chunk store, an embedding provider, a chunker."""
