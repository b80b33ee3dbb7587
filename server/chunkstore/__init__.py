"""chunkstore: exact, explainable hybrid retrieval of document passages over gRPC."""
