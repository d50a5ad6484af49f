"""`python -m benchmarks.environments FOLDER`: an environment for each peer, kept while what it needs stays the same."""

from __future__ import annotations

import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.peers.catalog import ENVIRONMENTS

AT_ONCE = 3


def install(folder: Path, name: str, requirements: tuple[str, ...]) -> str:
    """Make an environment, and say why if that failed: a peer that cannot be installed is left out, no more."""
    home, done = folder / name, folder / name / "installed.txt"
    wanted = "\n".join(requirements)
    if done.exists() and done.read_text() == wanted:
        return ""
    shutil.rmtree(home, ignore_errors=True)
    python = str(home / "bin" / "python")
    uv = shutil.which("uv")
    if uv:
        steps = [
            [uv, "venv", "--quiet", str(home)],
            [uv, "pip", "install", "--quiet", "--python", python, *requirements],
        ]
    else:
        steps = [
            [sys.executable, "-m", "venv", str(home)],
            [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *requirements],
        ]
    for step in steps:
        run = subprocess.run(step, capture_output=True, text=True, check=False)
        if run.returncode != 0:
            shutil.rmtree(home, ignore_errors=True)
            return (run.stderr.strip().splitlines() or ["no reason given"])[-1]
    done.write_text(wanted)
    return ""


def main() -> None:
    """Install all of them, some at a time."""
    folder = Path(sys.argv[1]).resolve()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        whys = pool.map(lambda item: install(folder, *item), ENVIRONMENTS.items())
        for name, why in zip(ENVIRONMENTS, whys, strict=True):
            print(f"{name}: {f'not installed: {why}' if why else 'ready'}")


if __name__ == "__main__":
    main()
