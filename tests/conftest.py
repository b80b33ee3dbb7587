"""What holds for every test."""

from __future__ import annotations

from hypothesis import settings

# Speed is measured by bench/, and the first example of a test may compile what it calls.
settings.register_profile("chunkstore", deadline=None)
settings.load_profile("chunkstore")
