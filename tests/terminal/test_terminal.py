"""A program at a real terminal, and the same program with pipes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from alpineagents import Agent, Terminal, tool
from alpineagents.testing import FakeModel, tool_call
from tests.cli.conftest import TIMEOUT, Command
from tests.cli.conftest import Terminal as Pty

ROOT = Path(__file__).parents[2]


class Scene(Command):
    """Plays the scenes of `program.py`."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.argv = [sys.executable, "-m", "tests.terminal.program"]
        self.env["PYTHONPATH"] += f":{ROOT}"


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    """The program, in an empty folder."""
    return Scene(tmp_path)


def at_terminal(scene: Scene, name: str) -> Pty:
    return scene.at_terminal(name)


def test_words_are_shown_without_codes(scene: Scene) -> None:
    """What a model writes cannot rename the window or move the cursor."""
    with at_terminal(scene, "words") as terminal:
        shown = terminal.read_until("day.")

        assert "Good \ufffd]0;owned\ufffd" in shown
        assert terminal.wait() == 0


def test_pipes_get_nothing_unless_asked_for(scene: Scene) -> None:
    """A program's output is its own: no words, lines or codes are mixed into it."""
    done = scene.run("quiet")

    assert (done.returncode, done.stdout, done.stderr) == (0, "answer: Good day.\n", "")


def test_quiet_false_writes_plain_lines_into_pipes(scene: Scene) -> None:
    """The words on stdout, the calls on stderr, and no code."""
    done = scene.run("loud")

    assert done.stdout == "red \ufffd[31m.\nred \x1b[31m.\n"  # ours, then what the program prints itself
    assert "  nothing() → input_error: there is no tool" in done.stderr
    assert "\x1b" not in done.stderr


def test_a_spinner_turns_while_one_waits(scene: Scene) -> None:
    """For the model and for each call, with how far it has come; at the end it is gone and the cursor is back."""
    with at_terminal(scene, "spinner") as terminal:
        terminal.read_until("asking fake")
        terminal.type("\n")
        terminal.read_until('climb(peak="Eiger") 3/10 upper hut')
        terminal.type("\n")
        terminal.read_until('climb(peak="Eiger") → ok: on top')
        rest = terminal.read_until("Done.\r\n")

        assert terminal.wait() == 0
        assert "\x1b[?25h" in rest


def test_a_run_that_fails_leaves_no_spinner(scene: Scene) -> None:
    """It is gone before the program goes on."""
    with at_terminal(scene, "fails") as terminal:
        shown = terminal.read_until("the run failed")

        assert shown.count("\x1b[?25h") == shown.count("\x1b[?25l") > 0
        assert terminal.wait() == 0


def test_the_end_says_what_a_run_took(scene: Scene) -> None:
    """Tokens and cost."""
    with at_terminal(scene, "cost") as terminal:
        terminal.read_until("1,200 tokens in, 30 out, $0.0042")

        assert terminal.wait() == 0


def test_a_closed_stdout_does_not_end_the_run(scene: Scene) -> None:
    """The rest is dropped, the run comes to its end, and so does the program."""
    process = subprocess.Popen(
        [*scene.argv, "deaf"], cwd=scene.folder, env=scene.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    process.stdout.close()

    _, told = process.communicate(timeout=TIMEOUT)

    assert b"ended with 250000" in told
    assert b"BrokenPipe" not in told
    assert process.returncode == 0


def test_an_approval_is_asked_in_place(scene: Scene) -> None:
    """Behind what the model said, with all arguments and no trick in them; other words than the known are no answer."""
    with at_terminal(scene, "approve") as terminal:
        shown = terminal.read_until("[a]lways here: ")
        terminal.type("sure\n")
        terminal.read_until("[a]lways here: ")
        terminal.type("y\n")
        terminal.read_until("ran: Paid.")

        assert shown.index("I pay.") < shown.index("pay is about to be called") < shown.index("amount = 5")
        assert 'to = "a\ufffdb\\u001b[2J"' in shown
        assert terminal.wait() == 0


@pytest.mark.parametrize("typed", [("n too much\n",), ("n\n", "too much\n")])
def test_a_refusal_can_say_why(scene: Scene, typed: tuple[str, ...]) -> None:
    """At once or when asked; the model is told."""
    with at_terminal(scene, "deny") as terminal:
        terminal.read_until("[a]lways here: ")
        terminal.type(typed[0])
        for more in typed[1:]:
            terminal.read_until("Why not? (Enter for no reason) ")
            terminal.type(more)
        terminal.read_until("told: Ada refused this call: too much")

        assert terminal.wait() == 0


def test_always_asks_once(scene: Scene) -> None:
    """The second call of the tool in this State is made unasked."""
    with at_terminal(scene, "always") as terminal:
        terminal.read_until("[a]lways here: ")
        terminal.type("a\n")
        rest = terminal.read_until("Both.")

        assert "Allow it?" not in rest
        assert terminal.wait() == 0


def test_ctrl_c_at_a_question_leaves_the_call_waiting(scene: Scene) -> None:
    """Another process may decide, and nothing that still reads keeps the program from ending."""
    with at_terminal(scene, "waiting") as terminal:
        terminal.read_until("[a]lways here: ")
        terminal.type("\x03")
        terminal.read_until("waits: ['waiting']")

        assert terminal.wait() != 0


def test_ctrl_d_at_a_question_leaves_the_call_waiting(scene: Scene) -> None:
    """It is no answer."""
    with at_terminal(scene, "waiting") as terminal:
        terminal.read_until("[a]lways here: ")
        terminal.type("\x04")
        terminal.read_until("waits: ['waiting']")
        terminal.read_until("nobody answered at the terminal")

        assert terminal.wait() == 1


def test_nobody_is_asked_without_a_terminal(scene: Scene) -> None:
    """A pipe cannot approve, whatever it says."""
    done = scene.run("nobody", input="y\n")

    assert "nobody can be asked" in done.stdout
    assert "await store.approve" in done.stdout


def test_a_question_gets_the_line_that_is_typed(scene: Scene) -> None:
    """Of `ask_human`."""
    with at_terminal(scene, "ask") as terminal:
        terminal.read_until("Which hut?")
        terminal.read_until("> ")
        terminal.type("the upper one\n")
        terminal.read_until("got: the upper one")

        assert terminal.wait() == 0


def test_a_decision_from_elsewhere_takes_the_question_back(scene: Scene) -> None:
    """The run goes on by it, and the person sees who decided."""
    with at_terminal(scene, "elsewhere") as terminal:
        terminal.read_until("pay(amount=5) approved by Bob")
        terminal.read_until("pay(amount=5) → ok: paid 5")
        terminal.read_until("ran: Paid.")

        assert terminal.wait() == 0


def test_a_program_without_streams_runs(scene: Scene) -> None:
    """Such as one that was started without a console."""
    assert scene.run("streamless").stdout == "Good day. False\n"


async def test_the_end_of_one_run_leaves_what_another_took(capsys: pytest.CaptureFixture[str]) -> None:
    """An Agent and one that works for it may share a terminal: each end tells of its own run, and calls keep names."""
    terminal = Terminal(quiet=False)

    @tool
    async def delegate() -> str:
        """Let another Agent work."""
        await Agent(FakeModel(["Inner."]), reporter=terminal).run("Go")
        return "done"

    await Agent(FakeModel([tool_call("delegate"), "Outer."]), tools=[delegate], reporter=terminal).run("Go")

    begun, inner, ended, outer = capsys.readouterr().err.splitlines()
    assert (begun, ended) == ("  delegate() …", "  delegate() → ok: done")
    assert 0 < int(inner.split()[0]) < int(outer.split()[0])
