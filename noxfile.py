"""
All checks of the project. `python -m nox` runs the default ones, `python -m nox -l` lists all.

Each session has an environment of its own. Tests run against the wheel that the session builds and installs, so that
they prove what users get.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import nox

nox.needs_version = ">=2025.2"
nox.options.default_venv_backend = "uv|virtualenv"
# The tests come last, so that a run ends with what they counted.
nox.options.sessions = ["lint", "types", "layers", "docs", "tests"]

ROOT = Path(__file__).parent
PYPROJECT = nox.project.load_toml(ROOT / "pyproject.toml")
PYTHONS = nox.project.python_versions(PYPROJECT)
CONSTRAINTS = ROOT / "constraints.txt"
OLDEST_POSTGRES = "15"
SWEEPS = (
    "tests/agent/test_crash.py",
    "tests/agent/test_cancel_sweep.py",
    "tests/contract/test_processes.py",
    "tests/ownership/test_many.py",
)


def install(session: nox.Session, *groups: str, requirements: tuple[str, ...] = ()) -> None:
    """Install dependency groups of pyproject.toml, in the versions that constraints.txt pins."""
    wanted = [name for group in groups for name in nox.project.dependency_groups(PYPROJECT, group)]
    session.install("--constraint", str(CONSTRAINTS), *wanted, *requirements)


def install_wheel(session: nox.Session, *groups: str) -> None:
    """Build the wheel and install it, with dependency groups."""
    install(session, "build")
    folder = Path(session.virtualenv.location) / "wheel"
    shutil.rmtree(folder, ignore_errors=True)
    session.run("hatchling", "build", "--target", "wheel", "--directory", str(folder), silent=True)
    (wheel,) = folder.glob("*.whl")
    install(session, *groups, requirements=(str(wheel),))


def run_pytest(session: nox.Session, *arguments: str, env: dict[str, str] | None = None) -> None:
    session.run("pytest", *arguments, *session.posargs, env=(env or {}) | {"ALPINE_TEST_INSTALLED": "1"})


@nox.session
def lint(session: nox.Session) -> None:
    """Check style and format."""
    install(session, "lint")
    session.run("ruff", "check")
    session.run("ruff", "format", "--check")


def check_types(session: nox.Session) -> None:
    """Check the types of the package, and of code that uses it."""
    install(session, "types", requirements=tuple(PYPROJECT["project"]["dependencies"]))
    typed = ["alpineagents"] + [folder for folder in ("tests/typing",) if Path(folder).is_dir()]
    version = session.python or ""
    named = ["--python-version", version] if isinstance(version, str) and version else []
    session.run("mypy", "--strict", *named, *typed, *session.posargs)


@nox.session
def layers(session: nox.Session) -> None:
    """Check that imports go one way."""
    install(session, "layers")
    session.run("lint-imports", "--no-logo")


@nox.session
def docs(session: nox.Session) -> None:
    """Build the documentation, and run every Python block in it and every example in docstrings."""
    install_wheel(session, "docs", "tests")
    site = Path(session.virtualenv.location) / "site"
    session.run("mkdocs", "build", "--strict", "--site-dir", str(site), env={"NO_MKDOCS_2_WARNING": "1"})
    # The README's blocks need a Postgres and a model's server: tests/test_readme.py runs them.
    session.run("pytest", "-p", "doc_blocks", "docs", env={"PYTHONPATH": "tests"})
    session.run("pytest", "--doctest-modules", "alpineagents")


def run_tests(session: nox.Session) -> None:
    """Run all tests, on SQLite and on a real Postgres."""
    install_wheel(session, "tests")
    run_pytest(session, "-n", "2")


# Without a version: on the Python that runs nox. `tests-3.12`, `types-3.12` and so on name one.
nox.session(name="types")(check_types)
nox.session(name="tests")(run_tests)
for python in PYTHONS:
    nox.session(name=f"types-{python}", python=python)(check_types)
    nox.session(name=f"tests-{python}", python=python)(run_tests)


@nox.session
def postgres(session: nox.Session) -> None:
    """Run the Postgres tests on the oldest version that is promised, from a system installation."""
    found = session.run(
        "python", "tests/postgres_server.py", "find", OLDEST_POSTGRES, silent=True, success_codes=[0, 1]
    )
    bindir = str(found).strip()
    if not Path(bindir).is_dir():
        session.skip(f"{bindir}; on Debian: apt-get install postgresql-{OLDEST_POSTGRES}")
    install_wheel(session, "tests")
    run_pytest(session, "-n", "2", "-m", "postgres", env={"ALPINE_TEST_POSTGRES_BINDIR": bindir})


@nox.session
def sweep(session: nox.Session) -> None:
    """Run in full what the tests run in short: kills and cancels at every moment, many processes; print the table."""
    install_wheel(session, "tests")
    run_pytest(session, "-n", "2", *SWEEPS, env={"ALPINE_TEST_FULL": "1"})


@nox.session
def strangers(session: nox.Session) -> None:
    """Run agents against servers of the models' formats that others wrote, and that judge their clients."""
    install_wheel(session, "tests", "strangers")
    run_pytest(session, "tests/strangers")


@nox.session
def migrations(session: nox.Session) -> None:
    """Check that the migrations lead to the tables that the code declares, and run their tests."""
    install_wheel(session, "tests")
    database = Path(session.virtualenv.location) / "migrations.db"
    database.unlink(missing_ok=True)
    env = {"ALPINEAGENTS_DATABASE_URL": f"sqlite:///{database}"}
    session.run("alembic", "upgrade", "head", env=env)
    session.run("alembic", "check", env=env)
    if Path("tests/migrations").is_dir():
        run_pytest(session, "tests/migrations")


@nox.session
def coverage(session: nox.Session) -> None:
    """Run all tests and show the lines and branches that none of them reaches."""
    install_wheel(session, "tests")
    session.run("coverage", "erase")
    program = shutil.which("pytest", path=os.pathsep.join(session.bin_paths or []))
    session.run("coverage", "run", str(program), "-n", "2", *session.posargs)
    session.run("coverage", "combine")
    session.run("coverage", "report")


@nox.session
def pin(session: nox.Session) -> None:
    """Write constraints.txt anew, with the newest versions that go together."""
    session.install(*PYPROJECT["project"]["dependencies"], *nox.project.dependency_groups(PYPROJECT, "dev"))
    listing = (
        "from importlib.metadata import distributions\n"
        "print(*sorted({f'{d.name.lower()}=={d.version}' for d in distributions()}), sep='\\n')"
    )
    names = str(session.run("python", "-c", listing, silent=True)).splitlines()
    kept = [name for name in names if name.partition("==")[0] not in ("pip", "setuptools", "wheel")]
    CONSTRAINTS.write_text("\n".join([f"# Written by `nox -s {session.name}`.", *kept]) + "\n")


@nox.session
def bench(session: nox.Session) -> None:
    """Run the benchmarks beside the drivers and other libraries; arguments go to them: `-- --alone`, `-- --full`."""
    install_wheel(session, "tests")
    session.install("matplotlib")
    # Beside the session's own environment, so that they are kept when that is made anew.
    environments = Path(session.virtualenv.location).with_name("bench-peers")
    if not {"--alone", "--prove", "--help"}.intersection(session.posargs):
        session.run("python", "-m", "benchmarks.environments", str(environments))
    session.run("python", "-m", "benchmarks", "--environments", str(environments), *session.posargs)


@nox.session
def demo(session: nox.Session) -> None:
    """Install the wheel and show an agent that dies and goes on, on this folder or the one after `--`."""
    install_wheel(session)
    session.run("alpineagents", "demo", *(session.posargs or [str(ROOT)]))
