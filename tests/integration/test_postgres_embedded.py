"""The private PostgreSQL starts whatever the last process that used it has left behind."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.databases import connected

from chunkstore.adapters.postgres.embedded import EmbeddedPostgres
from chunkstore.domain.errors import InvalidFieldError

CHILD = """
import pathlib, sys
from chunkstore.adapters.postgres.embedded import EmbeddedPostgres
with EmbeddedPostgres(pathlib.Path(sys.argv[1])):
    print("started", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    parent = Path(tempfile.mkdtemp(prefix="chunkstore-embedded-"))
    yield parent / "below" / "postgres"
    shutil.rmtree(parent)


def another_process(folder: Path) -> subprocess.Popen[str]:
    """Another process that uses the server, once it has started; a warning of any user's concern would end it."""
    environment = {name: value for name, value in os.environ.items() if name != "XDG_RUNTIME_DIR"}
    process = subprocess.Popen(
        [sys.executable, "-W", "error::UserWarning", "-c", CHILD, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "started\n"
    return process


def postmaster(folder: Path) -> int:
    return int((folder / "postmaster.pid").read_text().split()[0])


async def test_what_is_stored_outlives_the_server_and_the_process(folder: Path) -> None:
    with EmbeddedPostgres(folder) as dsn:
        async with connected(dsn) as connection:
            await connection.execute("CREATE TABLE kept AS SELECT 1 AS one")
    assert not (folder / "postmaster.pid").exists()
    process = another_process(folder)
    process.kill()
    process.wait()
    assert (folder / "postmaster.pid").exists()
    with EmbeddedPostgres(folder) as dsn:
        async with connected(dsn) as connection:
            assert await connection.fetchval("SELECT one FROM kept") == 1
    # The killed process does not count as a user, so that the last one to stop has ended the server.
    assert not (folder / "postmaster.pid").exists()


async def test_starts_after_a_crash_of_the_server(folder: Path) -> None:
    with EmbeddedPostgres(folder) as dsn:
        async with connected(dsn) as connection:
            await connection.execute("CREATE TABLE kept AS SELECT 1 AS one")
        os.kill(postmaster(folder), signal.SIGKILL)
    with EmbeddedPostgres(folder) as dsn:
        async with connected(dsn) as connection:
            assert await connection.fetchval("SELECT one FROM kept") == 1


async def test_starts_over_leftovers(folder: Path) -> None:
    """A process list cut short, and a pid file whose number is another process's by now."""
    with EmbeddedPostgres(folder) as dsn:
        async with connected(dsn) as connection:
            assert await connection.fetchval("SELECT 1") == 1
        pid_file = (folder / "postmaster.pid").read_text().splitlines()
    (folder / ".handle_pids.json").write_text("[12")
    for number, lines in ((os.getpid(), 8), (os.getpid(), 3), (2**22 + 1, 8)):
        (folder / "postmaster.pid").write_text("\n".join([str(number), *pid_file[1:lines]]) + "\n")
        with EmbeddedPostgres(folder) as dsn:
            async with connected(dsn) as connection:
                assert await connection.fetchval("SELECT 1") == 1


async def test_a_first_start_leaves_what_lies_beside_it(folder: Path) -> None:
    """Excludes a folder made on the way whose name may be somebody's own, and one that stays behind."""
    beside = folder.parent / f"{folder.name}.new"
    beside.mkdir(parents=True)
    (beside / "letter.txt").write_text("mine")
    with EmbeddedPostgres(folder) as dsn:
        async with connected(dsn) as connection:
            assert await connection.fetchval("SELECT 1") == 1
    assert (beside / "letter.txt").read_text() == "mine"
    assert [path.name for path in folder.parent.iterdir() if path.name.startswith(f".{folder.name}-")] == []


def test_a_folder_of_something_else_is_refused_and_kept(folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "letter.txt").write_text("mine")
    with pytest.raises(InvalidFieldError, match="data_dir"):
        EmbeddedPostgres(folder).start()
    assert (folder / "letter.txt").read_text() == "mine"


def test_a_file_in_the_folders_place_is_refused_and_kept(folder: Path) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.write_text("mine")
    with pytest.raises(InvalidFieldError, match="data_dir"):
        EmbeddedPostgres(folder).start()
    assert folder.read_text() == "mine"


async def test_processes_share_a_server_and_the_last_ends_it(folder: Path) -> None:
    process = another_process(folder)
    ours, again = EmbeddedPostgres(folder), EmbeddedPostgres(folder)
    dsn = ours.start()
    assert again.start() == dsn
    again.stop()
    again.stop()
    async with connected(dsn) as connection:
        assert await connection.fetchval("SELECT 1") == 1
    process.communicate("")
    assert process.returncode == 0
    async with connected(dsn) as connection:
        assert await connection.fetchval("SELECT 1") == 1
    ours.stop()
    assert not (folder / "postmaster.pid").exists()


def test_refuses_a_folder_of_another_version(folder: Path) -> None:
    with EmbeddedPostgres(folder, version=16):
        pass
    with pytest.raises(RuntimeError, match="version"):
        EmbeddedPostgres(folder, version=18).start()
