"""Where collaborators meet: settings, the retriever, the indexer, and the choice of adapters."""
