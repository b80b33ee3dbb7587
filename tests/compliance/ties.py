"""Chunks whose ids are pinned, so that a tie is decided by a known order and not by whichever digest is smaller."""

from __future__ import annotations

from typing import Final, NamedTuple


class Tied(NamedTuple):
    """A source, a text, and their id."""

    source_id: str
    text: str
    id: str


TEXT: Final = "alpha beta"

# By id; neither the order of the sources nor the order in which the tests write them.
E_70: Final = Tied("tie-e", TEXT, "700edb17c4976134c2a73f9932797a6e464d9b1e6253b524036755a12ddd0c74")
C_78: Final = Tied("tie-c", TEXT, "787886aca873671014020d2964af0dcd273a4ed5044faa91be63fb684967e1f1")
A_A3: Final = Tied("tie-a", TEXT, "a3d2dfb7e85065e5a4648629ddc5bf2a100ffb7b34ee53e181f4b3a11ca9c200")
D_C0: Final = Tied("tie-d", TEXT, "c0d2c151cc89f6dd11f4791994456d401ff49438e3214ab2ab314488168b0177")

BY_ID: Final = (E_70, C_78, A_A3, D_C0)
AS_WRITTEN: Final = (A_A3, D_C0, E_70, C_78)
