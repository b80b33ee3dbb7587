"""RetrieveChunks: the choice of fusion, each channel's share, required channels, and the time that channels have."""

from __future__ import annotations

from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from tests.compliance.messages import chunk
from tests.compliance.provider import turned
from tests.compliance.wire import Api, refusal

from chunkstore.v1 import retrieval_service_pb2 as pb
from chunkstore.v1.retrieval_service_pb2 import Fusion, RetrieveChunksRequest, RetrieveChunksResponse
from chunkstore.v1.store_service_pb2 import GetStoreInfoRequest

RANKS = pb.FUSION_METHOD_RECIPROCAL_RANK
SUM = pb.FUSION_METHOD_WEIGHTED_SUM
CORPUS = (
    chunk("near", "filler", vector=turned("alpha", 0.0)),
    chunk("both", "alpha filler", vector=turned("alpha", 40.0)),
    chunk("words", "alpha"),
    chunk("away", "alpha filler filler", vector=turned("alpha", 120.0)),
)


def ask(api: Api, query: str = "alpha", **fields: Any) -> RetrieveChunksResponse:
    return api.retrieval.RetrieveChunks(RetrieveChunksRequest(query=query, **fields))


def sources(answer: RetrieveChunksResponse) -> list[str]:
    return [scored.chunk.source_id for scored in answer.chunks]


@pytest.mark.parametrize(
    "fusion", [Fusion(), Fusion(method=RANKS), Fusion(method=SUM), Fusion(method=SUM, semantic_weight=0.9)]
)
def test_the_shares_account_for_the_score_to_the_bit(api: Api, fusion: Fusion) -> None:
    api.upsert(*CORPUS, chunk("held", "alpha BX-7741"))
    answer = ask(api, "alpha BX-7741", fusion=fusion)
    assert len(answer.chunks) == 5
    for scored in answer.chunks:
        total = 0.0
        for name in ("semantic", "lexical", "identifier"):
            fields = {field.name for field, _ in scored.ListFields()}
            assert (name in fields) == (f"{name}_rank" in fields)
            total += getattr(scored, f"{name}_share")
        assert scored.score == total
    assert sources(answer)[0] == "held"
    assert answer.chunks[0].identifier_share == 2.0


def test_an_unset_fusion_is_the_one_that_the_server_tells(api: Api) -> None:
    api.upsert(*CORPUS)
    assert api.store.GetStoreInfo(GetStoreInfoRequest()).fusion_method == SUM
    assert ask(api).chunks == ask(api, fusion=Fusion(method=SUM)).chunks == ask(api, fusion=Fusion()).chunks
    assert ask(api).chunks != ask(api, fusion=Fusion(method=RANKS)).chunks


def test_a_weight_alone_is_for_the_servers_own_fusion(api: Api) -> None:
    api.upsert(*CORPUS)
    weighted = ask(api, fusion=Fusion(semantic_weight=0.9))
    assert weighted.chunks == ask(api, fusion=Fusion(method=SUM, semantic_weight=0.9)).chunks


def test_channels_are_asked_by_name(api: Api) -> None:
    api.upsert(*CORPUS, chunk("held", "alpha BX-7741"))
    without = ask(api, "alpha BX-7741", channels=[pb.CHANNEL_LEXICAL, pb.CHANNEL_SEMANTIC, pb.CHANNEL_LEXICAL])
    reports = [report.status for report in without.channels]
    assert reports == [pb.CHANNEL_STATUS_ANSWERED] * 2 + [pb.CHANNEL_STATUS_NOT_REQUESTED]
    assert all(not scored.HasField("identifier_share") for scored in without.chunks)
    every = [pb.CHANNEL_SEMANTIC, pb.CHANNEL_LEXICAL, pb.CHANNEL_IDENTIFIER]
    assert ask(api, "alpha BX-7741", channels=every).chunks == ask(api, "alpha BX-7741").chunks
    assert ask(api, channels=[pb.CHANNEL_SEMANTIC]).chunks == ask(api, mode=pb.RETRIEVAL_MODE_SEMANTIC).chunks


def test_the_weight_moves_the_sum_from_one_channel_to_the_other(api: Api) -> None:
    api.upsert(*CORPUS)
    semantic = ask(api, fusion=Fusion(method=SUM, semantic_weight=1.0))
    lexical = ask(api, fusion=Fusion(method=SUM, semantic_weight=0.0))
    assert sources(semantic)[:2] == ["near", "both"]
    assert sources(lexical)[:2] == ["words", "both"]
    assert [semantic.chunks[0].score, lexical.chunks[0].score] == [1.0, 1.0]
    away = next(scored for scored in semantic.chunks if scored.chunk.source_id == "away")
    assert (away.semantic < 0.5, away.semantic_share) == (True, 0.0)


@pytest.mark.parametrize("weight", [-0.01, 1.01, float("nan"), float("inf")])
def test_a_weight_out_of_bounds_is_refused(api: Api, weight: float) -> None:
    refused = refusal(lambda: ask(api, fusion=Fusion(method=SUM, semantic_weight=weight)))
    assert (refused.code, refused.reason, refused.field) == (
        grpc.StatusCode.INVALID_ARGUMENT,
        "INVALID_FIELD",
        "fusion.semantic_weight",
    )


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"fusion": Fusion(method=RANKS, semantic_weight=0.5)}, "fusion.semantic_weight"),
        ({"fusion": Fusion(method=9)}, "fusion.method"),  # type: ignore[arg-type]
        ({"require": [pb.CHANNEL_LEXICAL, pb.CHANNEL_UNSPECIFIED]}, "require[1]"),
        ({"channels": [pb.CHANNEL_IDENTIFIER]}, "channels"),
        ({"channels": [pb.CHANNEL_LEXICAL, pb.CHANNEL_UNSPECIFIED]}, "channels[1]"),
        ({"channels": [9]}, "channels[0]"),
        ({"channels": [pb.CHANNEL_LEXICAL], "mode": pb.RETRIEVAL_MODE_LEXICAL}, "channels"),
        ({"channels": [pb.CHANNEL_LEXICAL], "require": [pb.CHANNEL_SEMANTIC]}, "require[0]"),
        ({"require": [9]}, "require[0]"),
        ({"require": [pb.CHANNEL_IDENTIFIER]}, "require[0]"),
        ({"require": [pb.CHANNEL_SEMANTIC], "mode": pb.RETRIEVAL_MODE_LEXICAL}, "require[0]"),
        ({"require": [pb.CHANNEL_LEXICAL], "mode": pb.RETRIEVAL_MODE_SEMANTIC}, "require[0]"),
        ({"channel_timeout": Duration()}, "channel_timeout"),
        ({"channel_timeout": Duration(seconds=-1)}, "channel_timeout"),
        ({"channel_timeout": Duration(nanos=999_999)}, "channel_timeout"),
        ({"channel_timeout": Duration(seconds=60, nanos=1)}, "channel_timeout"),
        ({"channel_timeout": Duration(seconds=315_576_000_000)}, "channel_timeout"),
    ],
)
def test_what_cannot_be_asked_is_refused(api: Api, fields: dict[str, Any], field: str) -> None:
    api.upsert(*CORPUS)
    refused = refusal(lambda: ask(api, **fields))
    assert (refused.code, refused.reason, refused.field) == (
        grpc.StatusCode.INVALID_ARGUMENT,
        "INVALID_FIELD",
        field,
    )


def test_required_channels_that_answer_change_nothing(api: Api) -> None:
    api.upsert(*CORPUS, chunk("held", "BX-7741"))
    every = [pb.CHANNEL_SEMANTIC, pb.CHANNEL_LEXICAL, pb.CHANNEL_IDENTIFIER]
    required = ask(api, "alpha BX-7741", require=every, channel_timeout=Duration(seconds=60))
    assert required.chunks == ask(api, "alpha BX-7741").chunks


def test_a_required_channel_that_is_not_configured_is_an_error(plain_api: Api) -> None:
    plain_api.upsert(chunk("one", "alpha", vector=(1.0, 0.0, 0.0, 0.0)))
    refused = refusal(lambda: ask(plain_api, require=[pb.CHANNEL_SEMANTIC]))
    assert (refused.code, refused.reason) == (grpc.StatusCode.UNAVAILABLE, "RETRIEVAL_DEGRADED")
    assert refused.metadata == {"missing": "semantic", "answered": "lexical"}
    assert ask(plain_api, require=[pb.CHANNEL_LEXICAL]).partial is True


def test_a_half_embedded_corpus_is_visible_in_the_report(api: Api) -> None:
    api.upsert(*CORPUS)
    semantic, lexical, identifier = ask(api).channels
    assert (semantic.rankable_count, semantic.chunk_count) == (3, 4)
    assert (lexical.rankable_count, lexical.chunk_count) == (4, 4)
    assert not identifier.HasField("rankable_count")
