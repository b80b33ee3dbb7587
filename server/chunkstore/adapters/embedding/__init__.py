"""Embedding providers: WordLlama in the process (the default), any OpenAI-compatible endpoint, hashed words."""
