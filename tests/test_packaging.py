"""What the built wheel holds. `nox` tests it installed; run from a checkout, these rules hold of the folder itself."""

from __future__ import annotations

import os
import sys
from importlib import metadata, resources
from pathlib import Path

import pytest

import alpineagents

pytestmark = pytest.mark.skipif("ALPINE_TEST_INSTALLED" not in os.environ, reason="only an installed wheel is asked")


def test_the_tests_run_against_the_installed_package() -> None:
    """No checkout stands in for the wheel."""
    assert Path(alpineagents.__file__).is_relative_to(sys.prefix)
    assert not Path(__file__).is_relative_to(Path(alpineagents.__file__).parents[1])


def test_the_wheel_says_that_it_is_typed() -> None:
    """A type checker reads the annotations of a package that has this file."""
    assert resources.files("alpineagents").joinpath("py.typed").is_file()


def test_the_wheel_brings_the_migrations() -> None:
    """A database can be migrated by the package alone."""
    migrations = resources.files("alpineagents").joinpath("migrations")

    assert migrations.joinpath("env.py").is_file()
    assert [file for file in migrations.joinpath("versions").iterdir() if file.name.endswith(".py")]


def test_the_wheel_brings_the_command() -> None:
    """`alpineagents` is a command after installation."""
    (command,) = metadata.entry_points(group="console_scripts", name="alpineagents")

    assert command.value == "alpineagents.cli:main"
