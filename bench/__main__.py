"""`python -m bench [--quick]`: measure, and write `bench/results/`. Exits with 1 where a peer failed."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from pathlib import Path

from bench.peers import PEERS
from bench.report import markdown, write_between_markers
from bench.run import Plan, run
from bench.workload import DIMENSION

RESULTS = Path(__file__).parent / "results"
README = Path(__file__).parent.parent / "README.md"

FULL = Plan(
    chunks=100_000,
    dimension=DIMENSION,
    small_tenant_chunks=10_000,
    throughput_s=10.0,
    growth_chunks=(1_000, 10_000, 400_000),
    growth_tenants=(1, 100, 1_000),
    peers=tuple(PEERS),
)
QUICK = Plan(
    chunks=20_000,
    dimension=DIMENSION,
    small_tenant_chunks=10_000,
    throughput_s=3.0,
    growth_chunks=(),
    growth_tenants=(),
    peers=tuple(PEERS),
)


def main() -> None:
    """Measure this service and its peers on one workload, and write table, plot and JSON to bench/results."""
    from bench.plot import plot

    parser = argparse.ArgumentParser(prog="python -m bench", description=main.__doc__)
    parser.add_argument("--quick", action="store_true", help="20,000 chunks, in three minutes; README stays as it is")
    quick = parser.parse_args().quick
    results = run(QUICK if quick else FULL)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "latest.json").write_text(results.model_dump_json(indent=2) + "\n")
    (RESULTS / "latest.md").write_text(markdown(results))
    plot(results, RESULTS / "latest.png")
    if not quick:
        write_between_markers(README, markdown(results))
    print(markdown(results))
    if results.failures:
        sys.exit(1)


if __name__ == "__main__":
    # Set for other work on some machines, they make products of matrices slow here; child processes inherit it.
    for name in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"):
        os.environ.pop(name, None)
    # Ends as by Ctrl-C: servers are stopped and folders removed.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    main()
