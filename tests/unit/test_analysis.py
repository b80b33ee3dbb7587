import math
import unicodedata
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from chunkstore.domain.analysis import (
    ANALYZER_VERSION,
    LONGEST_TERM,
    Token,
    analyzer,
    analyzer_names,
)
from chunkstore.domain.analysis_text import normalize, normalize_with_spans
from chunkstore.domain.analysis_words import all_pieces, pieces

ENGLISH = analyzer("english")
STANDARD = analyzer("standard")


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("The compact memories have flexible capacities.", "the compact memori have flexibl capac"),
        ("BX-7741", "bx-7741 bx7741 bx 7741"),
        ("bx7741", "bx7741 bx 7741"),
        ("BX 7741", "bx 7741"),
        ("RULE-A002", "rule-a002 rulea002 rule a002"),
        ("user_id", "user_id userid user id"),
        ("foo__bar __init__ _", "foo__bar foobar foo bar init"),
        ("getUserName", "getusername getusernam get user name"),
        ("HTTPServer PDFs McDonald", "httpserver http server pdfs mcdonald mc donald"),
        ("utf8Decode base64Encode", "utf8decode utf8 decod base64encode base64 base 64 encod"),
        ("AB/123", "ab/123 ab123 ab 123"),
        ("v1.2.3 1.2.3", "v1.2.3 v 1.2.3 1.2.3"),
        ("x86-64", "x86-64 x8664 x86 64"),
        ("BX-7741.pdf", "bx-7741.pdf bx7741pdf bx-7741 bx7741 bx 7741 pdf"),
        ("BX-7741/BX-7742", "bx-7741/bx-7742 bx7741bx7742 bx-7741 bx7741 bx 7741 bx-7742 bx7742 bx 7742"),
        ("(BX-7741,BX-7742)", "bx-7741 bx7741 bx 7741 bx-7742 bx7742 bx 7742"),
        ("user_id's", "user_id userid user id"),
        ("time-sharing timesharing", "timeshar time share timeshar"),
        ("state-of-the-art", "stateoftheart state of the art"),
        ("e-mail I/O node.js", "email e mail io i o nodej node js"),
        ("the U.S.A., e.g. a Ph.D.", "the usa eg a phd ph d"),
        ("3.14 1,000,000 1,234.5 7741,7742 1'000", "3.14 1000000 1234.5 7741 7742 1000"),
        ("2024-01-15 12:30 192.168.0.1", "2024-01-15 2024 01 15 12 30 192.168.0.1"),
        ("1960s 2nd 3-D", "1960s 2nd 3-d 3d 3 d"),
        ("can't user's don’t O'Neill", "can't user don't o'neil"),
        ("a:b std::vector x=1", "a b std vector x 1"),
        ("foo & | ! :* ( \" '", "foo"),
        ("hand\u00adbook \ufeffze\u200bro\u200d \ufe0f", "handbook zero"),
        ("ﬁne ＢＸ－７７４１ H₂O", "fine bx-7741 bx7741 bx 7741 h2o"),
        ("BX–7741 BX\u20117741", "bx-7741 bx7741 bx 7741 bx-7741 bx7741 bx 7741"),
        ("Łódź cœur Đà Nẵng", "lodz coeur da nang"),
        ("Ἀθῆναι ёлка мой", "αθηναι елка мой"),
        ("हिन्दी भाषा", "हिन्दी भाषा"),
        ("שָׁלוֹם مُحَمَّد", "שָׁלוֹם مُحَمَّد"),
        ("日本語", "日本 日 本語 本 語"),
        ("お茶を飲む", "お茶 茶を 茶 を飲 飲む 飲"),
        ("カタカナ", "カタ タカ カナ"),
        ("C言語 iPhone用", "c 言語 言 語 iphone iphon i phone 用"),
        ("ไทยมี", "ไท ทย ยมี"),
        ("한국어를 책", "한국 한 국어 어를 책"),
        ("👍🏽 👨\u200d👩\u200d👧 … — !?", ""),
        ("a\ud800b", "a b"),
        (" \t\n", ""),
        ("", ""),
    ],
)
def test_terms_of_english(text: str, terms: str) -> None:
    assert ENGLISH.terms(text) == terms.split()


@pytest.mark.parametrize(
    ("name", "text", "terms"),
    [
        ("standard", "The user's Memories, café", "the user's memories cafe"),
        ("german", "Die Häuser der Straße", "die haus der strass"),
        ("french", "L'homme, la pomme mangée", "homm la pomm mang mange"),
        ("russian", "новый мой", "нов мо"),
        ("turkish", "İstanbul", "istanbul"),
    ],
)
def test_terms_of_other_analyzers(name: str, text: str, terms: str) -> None:
    assert analyzer(name).terms(text) == terms.split()


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("see BX-7741", [("see", 0, 3), ("bx-7741", 4, 11), ("bx7741", 4, 11), ("bx", 4, 6), ("7741", 7, 11)]),
        ("getName", [("getname", 0, 7), ("getnam", 0, 7), ("get", 0, 3), ("name", 3, 7)]),
        ("hand\u00adbook x", [("handbook", 0, 9), ("x", 10, 11)]),
        ("cafe\u0301 x", [("cafe", 0, 5), ("x", 6, 7)]),
        ("İn Straße x", [("in", 0, 2), ("strass", 3, 9), ("x", 10, 11)]),
        ("ﬁne x", [("fine", 0, 3), ("x", 4, 5)]),
        ("½ x", [("1/2", 0, 1), ("1", 0, 1), ("2", 0, 1), ("x", 2, 3)]),
        ("_a_ (b)", [("a", 1, 2), ("b", 5, 6)]),
        ("ｶﾞｽ", [("ガス", 0, 3)]),
        ("国際。x", [("国際", 0, 2), ("国", 0, 1), ("際", 1, 2), ("x", 3, 4)]),
        ("\U0001f600 a\ud800b", [("a", 2, 3), ("b", 4, 5)]),
    ],
)
def test_spans_are_those_of_the_original_text(text: str, tokens: list[tuple[str, int, int]]) -> None:
    assert ENGLISH.tokens(text) == [Token(*token) for token in tokens]


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("to be or not to be", "be not or to"),
        ("What is the capacity of the memory?", "capac memori"),
        ("don't", "don't"),
        ("the the Memory memories", "memori"),
        ("BX-7741", "7741 bx bx-7741 bx7741"),
        ("BX 7741", "7741 bx bx7741"),
        ("bx 7741", "7741 bx bx7741"),
        ("in 500 days, top 10, May 2024, section 3", "10 2024 3 500 day may section top"),
        ("time-sharing", "share time"),
        ("e-mail", "e email mail"),
        ("on-line and/or I/O", "io line o onlin"),
        ("標準化", "標準 準化"),
        ("茶", "茶"),
        ("책", "책"),
        ("& | ! :* ( \" '", ""),
    ],
)
def test_query_terms(text: str, terms: str) -> None:
    assert ENGLISH.query_terms(text) == terms.split()


def test_only_english_has_stop_words() -> None:
    assert STANDARD.query_terms("the memory") == ["memory", "the"]
    assert analyzer("german").query_terms("der und die") == ["der", "die", "und"]


@pytest.mark.parametrize(
    ("text", "identifiers"),
    [
        ("BX-7741", "bx7741"),
        ("is bx7741 or BX 7741 or bx_7741 the same?", "bx7741"),
        ("RULE-A002", "rulea002"),
        ("a002", "a002"),
        ("user_id getUserName", "getusername userid"),
        ("v1.2.3 v12.3", "v1.2.3 v12.3"),
        ("AB/123, IBM 7090", "ab123 ibm7090"),
        ("BX-7741/BX-7742", "bx7741 bx7741bx7742 bx7742"),
        ("foo.getUserName", "getusername"),
        ("user name, time-sharing and/or e-mail", ""),
        ("7741 1,000 3.14 2024-01-15 1960s 2nd", ""),
        ("May 2024, in 500 days, JUNE 1960, top 10", ""),
        ("7741", "7741"),
        ("(0.18)", "0.18"),
        ("1,000", "1000"),
        ("1960s", "1960s"),
        ("2024-01-15", "2024-01-15"),
        ("7741,7742", ""),
        ("e-mail", "email"),
        ("memory", ""),
        ("the", ""),
        ("naïve", ""),
        ("標準", ""),
        ("...", ""),
        ("", ""),
    ],
)
def test_query_identifiers(text: str, identifiers: str) -> None:
    assert ENGLISH.query_identifiers(text) == identifiers.split()
    assert STANDARD.query_identifiers(text) == identifiers.split()


def test_a_query_of_joined_words_alone_asks_for_them_as_written() -> None:
    """Excludes a form that documents do not have, and the same for joined words among others."""
    for one in (ENGLISH, STANDARD, analyzer("french")):
        for text in ("time-sharing", "Time-Sharing!", "and/or", "mangée-là"):
            [term] = one.query_identifiers(text)
            assert one.terms(f"a {text} b").count(term) == 1
            assert not one.query_identifiers(f"{text} systems")
    assert analyzer("french").query_identifiers("mangée") == []


@pytest.mark.parametrize(
    "forms",
    [
        ("İstanbul", "istanbul", "ISTANBUL"),
        ("Straße", "STRASSE", "strasse"),
        ("caf\u00e9", "cafe\u0301", "CAFE\u0301", "cafe"),
        ("hand\u00adbook", "handbook", "Hand\u200bbook"),
        ("mangée", "mangee", "MANGÉE"),
        ("Ὀδυσσεύς", "ΟΔΥΣΣΕΥΣ", "οδυσσευς"),
        ("ёлка", "елка", "ЁЛКА"),
        ("ガス", "ｶﾞｽ", "カ\u3099ス"),
        ("한국", unicodedata.normalize("NFD", "한국")),
    ],
)
@pytest.mark.parametrize("name", analyzer_names())
def test_each_spelling_finds_the_others(name: str, forms: tuple[str, ...]) -> None:
    for document in forms:
        for query in forms:
            assert set(analyzer(name).query_terms(query)) & set(analyzer(name).terms(document)), (document, query)


@pytest.mark.parametrize(
    ("query", "document"),
    [
        ("標準化", "国際標準化に関する動向"),
        ("動向", "国際標準化に関する動向"),
        ("茶", "お茶を飲む"),
        ("हिन्दी", "यह हिन्दी है"),
        ("ไทย", "ภาษาไทยเป็นภาษา"),
        ("ខ្មែរ", "ភាសាខ្មែរ"),
        ("한국어", "한국어를 배운다"),
        ("책", "책을 읽는다"),
        ("timesharing", "time-sharing systems"),
        ("online", "an on-line system"),
        ("on-line", "an online system"),
        ("getusername", "call getUserName"),
        ("getUserName", "call getusername"),
        ("U.S.A.", "the USA"),
        ("1000000", "1,000,000 rows"),
    ],
)
def test_query_finds_document(query: str, document: str) -> None:
    assert set(ENGLISH.query_terms(query)) & set(ENGLISH.terms(document))


PASSAGES = [
    "Unit BX-7741 was replaced in the second week because its bearing had failed under load.",
    "Units BX-7742 and BX-7743 were replaced, and BX was reordered.",
    "Order 7741 was shipped.",
    "7741 7741 7741",
    "BX-1, BX-2, BX-3 and 7741 others.",
    "The bearing of the unit failed.",
    "A check named RULE-A002 refuses such rows.",
    "The rule is old. A rule may refuse rows. RULE-A003 does.",
    "Call getUserName with the user_id of the caller.",
    "Call the caller by the right id.",
]


@pytest.mark.parametrize(
    ("query", "best"),
    [
        ("BX-7741", 0),
        ("bx7741", 0),
        ("BX 7741", 0),
        ("bx 7741", 0),
        ("bx_7741", 0),
        ("RULE-A002", 6),
        ("a002", 6),
        ("rule a002", 6),
        ("getUserName", 8),
        ("user name", 8),
        ("user_id", 8),
        ("userid", 8),
    ],
)
def test_the_passage_with_the_exact_identifier_is_first(query: str, best: int) -> None:
    scores = bm25_scores(query)
    assert max(range(len(scores)), key=scores.__getitem__) == best
    assert sorted(scores)[-1] > sorted(scores)[-2]


def test_a_part_finds_the_identifier() -> None:
    assert bm25_scores("7741")[0] > 0


def bm25_scores(query: str) -> list[float]:
    documents = [ENGLISH.terms(passage) for passage in PASSAGES]
    average = sum(map(len, documents)) / len(documents)
    scores = [0.0] * len(documents)
    for term in ENGLISH.query_terms(query):
        frequency = sum(term in document for document in documents)
        idf = math.log(1 + (len(documents) - frequency + 0.5) / (frequency + 0.5))
        for i, document in enumerate(documents):
            count = Counter(document)[term]
            scores[i] += idf * count * 2.2 / (count + 1.2 * (0.25 + 0.75 * len(document) / average))
    return scores


def test_long_terms_are_digests_found_by_the_same_text_alone() -> None:
    word = "Q" * 3000
    assert ENGLISH.terms(word) == ["~c022f930998b09015cc805044775955f"]
    assert ENGLISH.terms(f"see {word.lower()}.") == ["see", *ENGLISH.terms(word)]
    assert not set(ENGLISH.terms(word)) & set(ENGLISH.terms(word + "q"))
    encoded = "aGVsbG8gd29ybGQ/" * 187 + "QUJDRA=="
    assert set(ENGLISH.query_terms(encoded)) <= set(ENGLISH.terms(f"token {encoded}"))
    assert max(map(len, ENGLISH.terms(encoded))) <= LONGEST_TERM
    assert STANDARD.terms("q" * LONGEST_TERM) == ["q" * LONGEST_TERM]


def test_long_runs_take_linear_time() -> None:
    assert ENGLISH.tokens("a" + "\u0316\u0301" * 500_000) == [Token("a", 0, 31)]
    assert ENGLISH.terms("111," * 50_000 + "1") == [*["111"] * 50_000, "1"]


def test_names() -> None:
    assert set(analyzer_names()) >= {"english", "french", "german", "russian", "standard"}
    assert "porter" not in analyzer_names()
    assert list(analyzer_names()) == sorted(analyzer_names())
    assert analyzer("english") is ENGLISH
    assert (ENGLISH.name, ENGLISH.version) == ("english", ANALYZER_VERSION)
    with pytest.raises(ValueError, match=r"^analyzer must be one of arabic, .*, standard, "):
        analyzer("klingon")


def test_threads_share_an_analyzer() -> None:
    texts = [" ".join(f"{word}ations {word}ing{i}x" for word in ("comput", "rel", "oper")) for i in range(2000)]
    expected = [analyzer("english").terms(text) for text in texts]
    analyzer.cache_clear()
    shared = analyzer("english")
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: [shared.terms(text) for text in texts], range(8)))
    assert all(answer == expected for answer in answers)


FRAGMENTS = st.sampled_from(
    [
        *"-._/,;:'’\" \u00ad\u200d\u0301\ud800½ßİﬁ国にㅎ가ไมี",
        "BX",
        "7741",
        "getUser",
        "user_id",
        "can't",
        "U.S.",
        "e\u0301",
    ]
)
ANY_TEXT = st.one_of(
    st.text(st.characters(exclude_categories=())),
    st.lists(st.one_of(FRAGMENTS, st.text(st.characters(exclude_categories=()), max_size=3))).map("".join),
)
ASCII_TEXT = st.one_of(
    st.text(st.characters(max_codepoint=127)),
    st.lists(st.sampled_from([*"-._/,;:' aAbBzZ019"])).map("".join),
)
LATIN = st.text(st.characters(max_codepoint=0x24F, categories=("L", "N", "P", "Z")))
NAMES = st.sampled_from(["english", "standard", "french", "turkish", "greek", "serbian"])


@given(ANY_TEXT, NAMES)
def test_any_text_gives_sound_tokens(text: str, name: str) -> None:
    tokens = analyzer(name).tokens(text)
    assert analyzer(name).terms(text) == [token.term for token in tokens]
    assert all(0 <= token.start < token.end <= len(text) for token in tokens)
    assert [token.start for token in tokens] == sorted(token.start for token in tokens)
    assert all(0 < len(token.term) <= LONGEST_TERM and token.term.split() == [token.term] for token in tokens)


@given(ANY_TEXT, NAMES)
def test_a_document_is_found_by_its_own_words(text: str, name: str) -> None:
    terms = analyzer(name).terms(text)
    asked = analyzer(name).query_terms(text)
    identifiers = analyzer(name).query_identifiers(text)
    spaced = {left + right for left, right in pairwise(terms)}
    assert asked == sorted(set(asked))
    assert bool(asked) == bool(terms)
    assert set(asked) <= set(terms) | spaced
    assert identifiers == sorted(set(identifiers))
    assert set(identifiers) <= set(terms) | spaced


@given(ANY_TEXT)
def test_normal_form_and_its_spans_agree(text: str) -> None:
    normal, starts, ends = normalize_with_spans(text)
    assert normal == normalize(text)
    assert len(normal) == len(starts) == len(ends)
    assert list(starts) == sorted(starts)
    assert list(ends) == sorted(ends)


@given(ANY_TEXT)
def test_forms_of_a_word_come_longest_first(text: str) -> None:
    for chunk in normalize(text).split():
        places = [(piece.start, -piece.end) for piece in pieces(chunk)]
        assert places == sorted(places)


@given(LATIN, NAMES)
def test_composed_and_decomposed_text_have_the_same_terms(text: str, name: str) -> None:
    composed, decomposed = unicodedata.normalize("NFC", text), unicodedata.normalize("NFD", text)
    assert analyzer(name).terms(composed) == analyzer(name).terms(decomposed)


def test_forgetting_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Excludes an analysis that is given out for another word, or lost, while remembered ones make room."""
    text = " ".join(f"{word}{number % 5}" for number in range(40) for word in ("memories", "BX-77", "w"))
    expected = [term for word in text.split() for term in STANDARD.terms(word)]
    monkeypatch.setattr("chunkstore.domain.analysis._RECENT", 3)
    assert STANDARD.terms(text) == expected
    assert [token.term for token in STANDARD.tokens(text)] == expected


@given(ASCII_TEXT)
@example("_foo_'s")
@example("bx7741 (BX7741), Bx1's w12 ab1 _AB12_ ab12cd 1ab getUser12 AB12.5")
def test_the_ascii_shortcut_changes_nothing(text: str) -> None:
    for chunk in text.split():
        assert pieces(chunk) == all_pieces(chunk)


@given(ASCII_TEXT, st.integers(min_value=0))
def test_ignorable_characters_change_nothing(text: str, place: int) -> None:
    place %= len(text) + 1
    assert ENGLISH.terms(f"{text[:place]}\u00ad{text[place:]}") == ENGLISH.terms(text)


@given(st.text(st.sampled_from("aeiouéèàüößçñstnrlmgd ")), st.sampled_from(analyzer_names()))
def test_unaccented_spelling_finds_accented(text: str, name: str) -> None:
    plain = "".join(c for c in unicodedata.normalize("NFD", text) if not unicodedata.combining(c))
    assert set(analyzer(name).query_terms(plain)) <= set(analyzer(name).terms(text))
