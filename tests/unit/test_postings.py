"""Postings of many chunks at once are those of each by itself."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chunkstore.domain.postings import Postings, TermKeys
from chunkstore.domain.text import TenantId

TERMS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=5) | st.sampled_from(["a", "b", "c"])
TEXTS = st.lists(st.lists(TERMS, max_size=12), max_size=6)
# BLAKE2b of "t", NUL and "compact" in 8 bytes, big endian.
COMPACT = 3_064_972_750_556_227_238


class FewKeys(TermKeys):
    """Keys of which many terms share one."""

    def key(self, term: str) -> int:
        return super().key(term) % 3 - 1


@pytest.mark.parametrize("keys", [TermKeys(TenantId("t")), FewKeys(TenantId("t"))])
@given(texts=TEXTS)
def test_joined_postings_are_those_of_each_text(keys: TermKeys, texts: list[list[str]]) -> None:
    joined = keys.joined_postings(texts)
    starts = [0, *joined.ends][: len(texts)]
    parts = [
        Postings(joined.keys[start:end], joined.frequencies[start:end])
        for start, end in zip(starts, joined.ends, strict=True)
    ]
    expected = [keys.postings(terms) for terms in texts]
    assert [part.keys.tolist() for part in parts] == [postings.keys.tolist() for postings in expected]
    assert [part.frequencies.tolist() for part in parts] == [postings.frequencies.tolist() for postings in expected]
    assert joined.lengths == [postings.length for postings in expected]
    assert joined.keys.dtype == np.int64
    assert joined.frequencies.dtype == np.int32
    assert len(joined.keys) == len(joined.frequencies) == (joined.ends or [0])[-1]


def test_a_key_is_the_digest_of_tenant_and_term() -> None:
    keys = TermKeys(TenantId("t"))
    assert keys.postings(["compact", "compact"]).keys.tolist() == [keys.key("compact")] == [COMPACT]
    assert TermKeys(TenantId("u")).key("compact") != COMPACT
