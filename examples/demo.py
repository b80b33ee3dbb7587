"""The main job, end to end: a private PostgreSQL, a handbook streamed in, two questions answered.

Run it with `make demo`. Exits with 1 if either question is not answered by the right passage first.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

from chunkstore.cli.query import print_answer
from chunkstore.client import ChunkstoreClient

HANDBOOK = Path(__file__).parent / "handbook"
QUESTIONS = (
    ("BX-7741", "BX-7741"),
    ("how do I get my money back when a trip is called off", "## What is refunded"),
)
COMMAND = [sys.executable, "-m", "chunkstore.cli.main"]


def main() -> int:
    """Serve, index, ask; the exit code."""
    console = Console(width=max(110, Console().width))
    with tempfile.TemporaryDirectory() as folder, _serving(Path(folder) / "postgres") as address:
        console.rule("chunkstore index examples/handbook")
        subprocess.run([*COMMAND, "index", str(HANDBOOK), "--address", address, "--tenant", "demo"], check=True)
        with ChunkstoreClient(address, "demo") as client:
            for question, expected in QUESTIONS:
                console.rule(f"chunkstore query {question!r} -k 3")
                answer = client.retrieve_chunks(question, k=3)
                print_answer(answer, console)
                if not answer.chunks or expected not in answer.chunks[0].chunk.text:
                    console.print(f"expected the passage that holds {expected!r} first")
                    return 1
    return 0


@contextmanager
def _serving(data: Path) -> Iterator[str]:
    """A server over a private PostgreSQL in `data`, on a free port; its address."""
    arguments = ["serve", "--address", "127.0.0.1:0", "--data-dir", str(data)]
    with subprocess.Popen([*COMMAND, *arguments], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield server.stdout.readline().removeprefix("listening on ").strip()
        finally:
            server.terminate()
            server.wait()


if __name__ == "__main__":
    sys.exit(main())
