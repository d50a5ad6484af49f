"""`alpineagents chat`, as a person and a script use it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cli.conftest import TIMEOUT, Command
from tests.servers.openai_server import OpenAIServer, Step, begins, calls, says, silent, status


def test_chat_answers_each_piped_line(command: Command) -> None:
    """A line is a message, blank ones are skipped, and stdout holds the answers alone."""
    with OpenAIServer(says("Good", " day."), says("It is blue.")) as server:
        done = command.knows(server).chat("Hello", "", "Which colour?")

    assert (done.returncode, done.stdout) == (0, "Good day.\nIt is blue.\n")
    assert [message["content"] for message in server.bodies[1]["messages"]] == ["Hello", "Good day.", "Which colour?"]


def test_chat_says_what_a_turn_took(command: Command) -> None:
    """The tokens of a turn are told at its end, on stderr."""
    with OpenAIServer(says("Good day.")) as server:
        done = command.knows(server).chat("Hello")

    assert done.stderr == "12 tokens in, 5 out\n"


def test_chat_sends_the_system_prompt(command: Command) -> None:
    """What --system says is told to the model first."""
    with OpenAIServer(says("Yes.")) as server:
        command.knows(server).chat("Hello", args=("--system", "Be brief."))

    assert server.bodies[0]["messages"][0]["content"] == "Be brief."


def test_chat_writes_no_control_codes(command: Command) -> None:
    """Neither the command nor a model can send codes into a pipe or a terminal."""
    with OpenAIServer(says("red: \x1b[31m\x07.")) as server:
        done = command.knows(server).chat("Hello")

    assert done.stdout == "red: \ufffd[31m\ufffd.\n"
    assert "\x1b" not in done.stderr


def test_chat_shows_tool_calls(command: Command) -> None:
    """A call is shown with what came of it, apart from the answer."""
    with OpenAIServer(calls(("search", {"word": "alps"}), text="I look."), says("Nothing.")) as server:
        done = command.knows(server).chat("Search")

    assert done.stdout == "I look.\nNothing.\n"
    assert 'search(word="alps") → input_error: there is no tool' in done.stderr


def test_chat_resumes_the_newest_state(command: Command) -> None:
    """--resume without an id goes on with the State that was used last."""
    with OpenAIServer(says("One."), says("Two."), says("Three.")) as server:
        command.knows(server).chat("first talk")
        command.chat("second talk")
        done = command.chat("go on", args=("--resume",))

    assert done.stdout == "Three.\n"
    assert [message["content"] for message in server.bodies[2]["messages"]] == ["second talk", "Two.", "go on"]


def test_chat_resumes_a_state_by_its_id(command: Command) -> None:
    """--resume ID goes on with that State."""
    with OpenAIServer(says("One."), says("Two."), says("Three.")) as server:
        command.knows(server).chat("first talk")
        state_id = command.listed()[0]["id"]
        command.chat("second talk")
        command.chat("go on", args=("--resume", state_id))

    assert [message["content"] for message in server.bodies[2]["messages"]] == ["first talk", "One.", "go on"]


def test_chat_goes_on_after_an_error_of_the_model(command: Command) -> None:
    """A failed turn is one line on stderr; the same words again are another try, not a second message."""
    with OpenAIServer(status(400, "no such model"), says("Now.")) as server:
        done = command.knows(server).chat("Hello", "Hello")

    assert (done.returncode, done.stdout) == (0, "Now.\n")
    assert done.stderr.startswith("error: ")
    assert "no such model" in done.stderr
    assert [message["content"] for message in server.bodies[1]["messages"]] == ["Hello"]


def test_chat_says_why_it_waits(command: Command) -> None:
    """A request that is sent again is told with the reason, on stderr."""
    with OpenAIServer(status(503, "busy", headers={"Retry-After": "0"}), says("Now.")) as server:
        done = command.knows(server).chat("Hello")

    assert (done.returncode, done.stdout) == (0, "Now.\n")
    assert "answered 503 Service Unavailable: busy" in done.stderr
    assert "trying again in 0 s" in done.stderr


def test_chat_fails_if_the_last_piped_turn_failed(command: Command) -> None:
    """A script sees by the exit code that its last line got no answer."""
    with OpenAIServer(status(401, "wrong key")) as server:
        done = command.knows(server).chat("Hello")

    assert (done.returncode, done.stdout) == (1, "")
    assert "Traceback" not in done.stderr


def test_chat_resumes_a_message_without_an_answer(command: Command) -> None:
    """A blank line after a failed turn tries again, in another process too."""
    with OpenAIServer(status(400, "overloaded"), says("Now.")) as server:
        command.knows(server).chat("Hello")
        done = command.chat("", args=("--resume",))

    assert (done.returncode, done.stdout) == (0, "Now.\n")


@pytest.mark.parametrize(
    "args, named",
    [
        (("chat",), "ANTHROPIC_API_KEY"),
        (("chat", "--model", "gpt-test"), "OPENAI_API_KEY"),
        (("chat", "--model", "gtp-5"), "gpt-5"),
        (("chat", "--model", "ollama/llama3", "--resume"), "alpineagents chat --store chat.db"),
        (("chat", "--model", "ollama/llama3", "--store", "mysql://host/db"), "postgresql://"),
    ],
)
def test_chat_says_what_to_set(command: Command, args: tuple[str, ...], named: str) -> None:
    """What keeps a chat from beginning is one line that says how to mend it, and leaves no file behind."""
    done = command.run(*args)

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    assert named in done.stderr
    assert list(command.folder.iterdir()) == []


def test_chat_refuses_an_id_without_resume(command: Command) -> None:
    """An id alone is no order to go on, so it is not taken for one."""
    done = command.run("chat", "some-id")

    assert done.returncode == 2
    assert "--resume some-id" in done.stderr


def test_chat_ends_quietly_when_nobody_reads(command: Command, started: Any) -> None:
    """A reader that leaves, as `head` does, is no reason for a traceback."""
    with OpenAIServer(says("Good day.")) as server:
        process = started(command.knows(server), "chat", "--model", "gpt-test")
        process.stdout.close()
        process.stdin.write("Hello\n")
        process.stdin.close()

        assert process.wait(TIMEOUT) != 0
        assert "Traceback" not in process.stderr.read()


def test_ctrl_c_stops_the_turn_and_a_second_one_leaves(command: Command) -> None:
    """The stopped turn is recorded before the prompt is back; the next turn works; at the prompt Ctrl+C leaves."""
    with (
        OpenAIServer(begins("Once upon a").then(Step.STALL), says("Good again.")) as server,
        command.knows(server).at_terminal("chat", "--model", "gpt-test") as terminal,
    ):
        terminal.read_until("> ")
        terminal.type("Tell me a story\n")
        terminal.read_until("Once upon a")
        terminal.type("\x03")
        terminal.read_until("stopped; the turn is saved as cancelled")
        terminal.read_until("> ")
        stopped = command.listed()[0]

        terminal.type("And now?\n")
        terminal.read_until("Good again.")
        terminal.read_until("> ")
        code = terminal.leave()

    assert (stopped["status"], stopped["stopped"]["kind"]) == ("cancelled", "cancel")
    assert code == 0
    assert command.listed()[0]["status"] == "stopped"


def test_ctrl_c_before_the_first_word_stops_too(command: Command) -> None:
    """A model that says nothing at all is left at once."""
    with (
        OpenAIServer(silent()) as server,
        command.knows(server).at_terminal("chat", "--model", "gpt-test") as terminal,
    ):
        terminal.read_until("> ")
        terminal.type("Hello\n")
        assert server.stalled.wait(TIMEOUT)
        terminal.type("\x03")
        terminal.read_until("saved as cancelled")
        terminal.read_until("> ")

        assert terminal.leave() == 0


def test_ctrl_d_leaves_the_prompt(command: Command) -> None:
    """End of file at the prompt ends the chat without an error."""
    with (
        OpenAIServer() as server,
        command.knows(server).at_terminal("chat", "--model", "gpt-test") as terminal,
    ):
        terminal.read_until("> ")
        terminal.type("\x04")

        assert terminal.wait() == 0


def test_enter_tries_a_failed_turn_again(command: Command) -> None:
    """After an error the prompt is back, and Enter alone asks the model again."""
    with (
        OpenAIServer(status(400, "overloaded"), says("Now it works.")) as server,
        command.knows(server).at_terminal("chat", "--model", "gpt-test") as terminal,
    ):
        terminal.read_until("> ")
        terminal.type("Hello\n")
        terminal.read_until("press Enter to try again")
        terminal.read_until("> ")
        terminal.type("\n")

        terminal.read_until("Now it works.")


OFFICE = """
from alpineagents import Agent, FileStore, tool
from alpineagents.testing import FakeModel, tool_call

@tool(needs_approval=True)
def pay(amount: int) -> str:
    "Pay an amount."
    return f"paid {amount}"

agent = Agent(FakeModel([tool_call("pay", amount=5), "It is paid."]), tools=[pay], store=FileStore("runs"))
number = 7
"""


def test_chat_talks_to_an_agent_of_ones_own(command: Command) -> None:
    """With its tools and its store; a call that needs an approval is asked about in place."""
    (command.folder / "office.py").write_text(OFFICE)
    with command.at_terminal("chat", "--agent", "office:agent") as terminal:
        greeting = terminal.read_until("> ")
        terminal.type("Pay 5\n")
        terminal.read_until("amount = 5")
        terminal.read_until("[a]lways here: ")
        terminal.type("y\n")
        terminal.read_until("pay(amount=5) → ok: paid 5")
        terminal.read_until("It is paid.")
        terminal.read_until("> ")
        code = terminal.leave()

    assert ("fake · FileStore" in greeting, code) == (True, 0)
    assert {each.name for each in command.folder.iterdir()} - {"__pycache__"} == {"office.py", "runs"}


def test_ctrl_c_at_a_question_of_a_chat_brings_the_prompt_back(command: Command) -> None:
    """The call waits; Enter asks about it again."""
    (command.folder / "office.py").write_text(OFFICE)
    with command.at_terminal("chat", "--agent", "office:agent", "--store", "mine.db") as terminal:
        terminal.read_until("> ")
        terminal.type("Pay 5\n")
        terminal.read_until("[a]lways here: ")
        terminal.type("\x03")
        terminal.read_until("stopped")
        terminal.read_until("> ")
        waiting = command.listed("mine.db")[0]["status"]
        terminal.type("\n")
        terminal.read_until("[a]lways here: ")
        terminal.type("y\n")
        terminal.read_until("It is paid.")

    assert waiting == "waiting"


def test_chat_with_a_pipe_leaves_an_approval_waiting(command: Command) -> None:
    """Nobody can be asked, so the call waits in the store, here in the one that --store names."""
    (command.folder / "office.py").write_text(OFFICE)
    done = command.run("chat", "--agent", "office:agent", "--store", "mine.db", input="Pay 5\n")

    assert "waiting for approval of 1 call" in done.stderr
    assert command.listed("mine.db")[0]["status"] == "waiting"


@pytest.mark.parametrize(
    "agent, said",
    [
        ("office", "--agent module:name"),
        ("nowhere:agent", "there is no module 'nowhere'"),
        ("office:nobody", "It has: agent"),
        ("office:number", "It has: agent"),
        ("broken:agent", "module 'broken' fails with ZeroDivisionError"),
        ("needy:agent", "there is no module 'missing_one', which module 'needy' imports"),
    ],
)
def test_chat_says_what_is_wrong_with_an_agents_name(command: Command, agent: str, said: str) -> None:
    """In one line, before anything else is done."""
    (command.folder / "office.py").write_text(OFFICE)
    (command.folder / "broken.py").write_text("1 / 0")
    (command.folder / "needy.py").write_text("import missing_one")

    done = command.run("chat", "--agent", agent)

    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert said in done.stderr
    assert not (command.folder / "chat.db").exists()
