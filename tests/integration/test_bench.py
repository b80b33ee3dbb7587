"""The benchmark's own part on a tiny workload, without the peers' libraries."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from bench.measuring import recall
from bench.peer_process import PeerFailedError, measure_peer
from bench.report import BEGIN, END, markdown, write_between_markers
from bench.results import Failure, Results
from bench.run import Plan, run
from bench.workload import Workload

PLAN = Plan(
    chunks=200,
    dimension=16,
    small_tenant_chunks=50,
    throughput_s=0.2,
    growth_chunks=(),
    growth_tenants=(2,),
    peers=(),
)


@pytest.fixture(scope="module")
def results() -> Results:
    return run(PLAN)


def test_a_run_measures_every_figure(results: Results) -> None:
    written = json.loads(results.model_dump_json())
    own = written["systems"]["chunkstore"]
    assert (written["chunks"], written["dimension"]) == (200, 16)
    assert own["recall"] == 1.0
    assert 0 < own["recall_same_fusion"] <= 1
    assert 0 < own["p50_ms"] <= own["p95_ms"]
    assert own["index_s"] > 0
    assert own["disk_per_chunk"] > written["payload_per_chunk"] > 16 * 4
    assert own["mirror_per_chunk"] > 16 * 4
    assert written["empty_call_p50_ms"] > 0
    assert written["throughput"].keys() == {"1", "16"}
    assert min(written["throughput"].values()) > 0
    assert [point["chunks"] for point in written["by_chunks"]] == [200]
    assert [point["tenants"] for point in written["by_tenants"]] == [2]
    assert "cores" in written["machine"]


def test_a_failed_system_is_in_the_table_by_its_errors_type(results: Results) -> None:
    failed = results.model_copy(update={"systems": {**results.systems, "lancedb": Failure(error="ImportError")}})
    assert failed.failures == {"lancedb": "ImportError"}
    assert "| lancedb | failed: ImportError |" in markdown(failed)
    assert results.failures == {}


def test_only_what_stands_between_the_markers_is_replaced(tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    readme.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    write_between_markers(readme, "new\n")
    assert readme.read_text() == f"before\n{BEGIN}\nnew\n{END}\nafter\n"


def test_a_peer_that_raises_or_dies_fails_by_name(tmp_path: Path) -> None:
    with pytest.raises(PeerFailedError) as failure:
        measure_peer("no such peer", tmp_path, tmp_path)
    assert failure.value.kind == "FileNotFoundError"


def test_the_workload_is_the_same_every_time_and_its_queries_lie_near_stored_vectors() -> None:
    workload, again = Workload.generate(200, 16), Workload.generate(200, 16)
    assert np.array_equal(workload.vectors, again.vectors)
    assert [query.words for query in workload.queries] == [query.words for query in again.queries]
    np.testing.assert_allclose(np.linalg.norm(workload.vectors, axis=1), 1, rtol=1e-6)
    assert all(len(workload.text(number).split()) == 100 for number in range(200))
    assert all((workload.vectors @ query.vector).max() > 0.98 for query in workload.queries)


def test_recall_counts_the_true_chunks_found() -> None:
    assert recall([[1, 2], [5, 6]], [[2, 3], [6, 5]]) == 0.75
