"""PgBouncer in transaction mode before a server, where it is installed."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import make_url

from tests.postgres_server import free_port

SESSIONS = 2
"""How many of the server's sessions all clients share: few, so that each transaction gets another one than the last."""


def find_pgbouncer() -> str | None:
    """Find the program on the path, or where Debian puts it."""
    return shutil.which("pgbouncer", path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"]))


@contextmanager
def pgbouncer(program: str, url: str, folder: Path) -> Iterator[str]:
    """Run it on a free loopback port and give the URL of the database by way of it."""
    target = make_url(url)
    port = free_port()
    users = folder / "users.txt"
    users.write_text(f'"{target.username}" "{target.password}"\n')
    config = folder / "pgbouncer.ini"
    config.write_text(
        f"""[databases]
* = host={target.host} port={target.port}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = trust
auth_file = {users}
pool_mode = transaction
default_pool_size = {SESSIONS}
max_client_conn = 200
"""
    )
    # It refuses to run as root.
    options: dict[str, object] = {}
    if os.geteuid() == 0:
        for path in (folder, users, config):
            shutil.chown(path, "nobody")
        options = {"user": "nobody", "extra_groups": []}
    process = subprocess.Popen(
        [program, "--quiet", str(config)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        **options,
    )
    try:
        _wait_for(port, process)
        yield target.set(host="127.0.0.1", port=port).render_as_string(hide_password=False)
    finally:
        process.kill()
        process.wait()


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + 20
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            if time.monotonic() > end or process.poll() is not None:
                raise
            time.sleep(0.02)
        else:
            return
