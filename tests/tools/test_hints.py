"""Hints that depend on the call: a function of the arguments says what holds, and one that fails is never trusted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from alpineagents import (
    Agent,
    Allow,
    ConfigError,
    MemoryStore,
    Message,
    State,
    ToolContext,
    ToolDefinitionError,
    ToolRequest,
    ToolStarted,
    tool,
)
from alpineagents.permissions import allow, deny
from alpineagents.testing import FakeModel, tool_call
from tests.agent.parts import of, outcomes, results


def only_looks(args: Mapping[str, Any]) -> bool:
    return str(args["command"]).split()[0] in ("ls", "cat")


@tool(read_only=only_looks, destructive=True, open_world=lambda args: "http" in args["command"])
def shell(command: str, folder: str = ".") -> str:
    """Run a command."""
    return f"{command} in {folder}"


def hints(args: dict[str, Any], used: Any = shell) -> dict[str, bool]:
    settled = used.for_call(args)
    return {name: getattr(settled, name) for name in ("read_only", "destructive", "idempotent", "open_world")}


def test_a_hint_is_settled_for_each_call() -> None:
    """`destructive=True` beside a function for `read_only` holds for the calls that change something."""
    looks = {"read_only": True, "destructive": False, "idempotent": False, "open_world": False}
    changes = {"read_only": False, "destructive": True, "idempotent": False, "open_world": True}

    assert hints({"command": "ls"}) == looks
    assert hints({"command": "rm http"}) == changes
    assert hints({"command": "ls"}, shell.for_call({"command": "rm http"})) == looks


def test_before_that_the_unsafe_value_stands() -> None:
    """Whoever reads the hint of the tool itself is not lulled by it."""
    assert (shell.read_only, shell.destructive, shell.idempotent, shell.open_world) == (False, True, False, True)
    assert repr(shell) == "Tool(shell(command, folder), read_only=only_looks, destructive=True, open_world=<lambda>)"


def test_the_function_gets_values_and_defaults() -> None:
    """As the tool gets them, whether the model wrote them or left them out."""
    seen: list[Mapping[str, Any]] = []

    def look(args: Mapping[str, Any]) -> bool:
        seen.append(args)
        return True

    @tool(idempotent=look)
    def put(count: int, name: str = "a") -> None:
        """Put."""

    assert put.for_call({"count": "3"}).idempotent
    assert seen == [{"count": 3, "name": "a"}]


def raises(args: Mapping[str, Any]) -> bool:
    raise KeyError("method")


@pytest.mark.parametrize("hint", [raises, lambda args: args.get("none"), lambda args: 1, lambda args: "yes"])
def test_what_fails_counts_as_unsafe(hint: Any, caplog: pytest.LogCaptureFixture) -> None:
    """A function that raises, or gives no bool, is logged."""
    used = tool(read_only=hint, destructive=hint, idempotent=hint, open_world=hint)(shell.function)

    assert hints({"command": "ls"}, used) == {
        "read_only": False,
        "destructive": True,
        "idempotent": False,
        "open_world": True,
    }
    assert "read_only of tool shell" in caplog.text


def test_arguments_that_do_not_fit_count_as_unsafe() -> None:
    """Nothing can be told of such a call."""
    assert hints({"folder": 1}) == {"read_only": False, "destructive": True, "idempotent": False, "open_world": True}


def test_a_call_that_is_both_counts_as_destructive(caplog: pytest.LogCaptureFixture) -> None:
    """Where two functions contradict each other, the worse one is believed."""
    used = tool(read_only=lambda args: True, destructive=lambda args: True)(shell.function)

    assert hints({"command": "ls"}, used)["read_only"] is False
    assert "it counts as the latter" in caplog.text


async def _async(args: Mapping[str, Any]) -> bool:
    return True


@pytest.mark.parametrize(
    "settings, said",
    [
        ({"read_only": "yes"}, "is not True, False or a sync function of the arguments: @tool(read_only=lambda args: "),
        ({"read_only": _async}, "is not True, False or a sync function of the arguments"),
        ({"idempotent": lambda: True}, "idempotent"),
        ({"needs_approval": only_looks}, "is not True or False: @tool(needs_approval=True)"),
        ({"parallel": 1}, "@tool(parallel=True)"),
        ({"read_only": True, "destructive": only_looks}, "cannot be both read_only and destructive"),
    ],
)
def test_what_can_be_no_hint_is_refused(settings: dict[str, Any], said: str) -> None:
    """When the tool is made."""
    with pytest.raises(ToolDefinitionError) as refused:
        tool(**settings)(shell.function)

    assert said in str(refused.value)


async def ran(permissions: Any, *commands: str) -> State:
    state = State(messages=[Message.user("Go")])
    calls = [tool_call("shell", command=command) for command in commands]
    await Agent(FakeModel([calls, "Done."]), tools=[shell], permissions=permissions).run(state)
    return state


async def test_rules_see_the_hints_of_the_call() -> None:
    """One tool, of which one call is allowed and another is not."""
    state = await ran(allow(read_only=True), "ls", "rm a", "cat b")

    assert results(state) == ["ls in .", "permissions refused this call: no rule allows it", "cat b in ."]

    rules = [deny(destructive=True, reason="no"), lambda call: Allow() if call.tool.read_only else None]
    state = await ran(rules, "ls", "rm")
    assert results(state) == ["ls in .", "rule deny(destructive=True) refused this call: no"]


async def test_the_arguments_that_a_rule_puts_in_have_their_own_hints() -> None:
    """A call that only looked is not allowed to delete because a rule changed it."""

    def change(call: ToolRequest) -> Allow:
        return Allow(args={"command": "rm a"})

    state = await ran([deny(destructive=True, reason="nothing is deleted"), change], "ls")

    assert outcomes(state) == {"shell": "denied"}


@pytest.mark.parametrize("command, starts, result", [("ls", 2, "ls in ."), ("rm a", 1, "The outcome of this call")])
async def test_after_a_crash_a_call_runs_again_if_it_only_looked(command: str, starts: int, result: str) -> None:
    """The hint of that call counts, not that of its tool."""
    store = MemoryStore()
    agent = Agent(FakeModel([tool_call("shell", command=command), "Done."]), tools=[shell], store=store)
    await agent.run("Go", id="whole")
    whole = await store.load("whole")
    left = (await store.load("whole", of(whole, ToolStarted)[0].revision)).fork(id="left")
    left.parent_id = None  # it stands for the State itself, whose process died
    await store.save(left)

    assert await agent.copy(model=FakeModel(["Done."])).resume("left") == "Done."

    state = await store.load("left")
    assert len(of(state, ToolStarted)) == starts
    assert results(state)[0].startswith(result)


async def test_a_tool_that_may_run_again_for_a_call_may_run_an_agent() -> None:
    """The demand that it can go on after a crash is one of the call."""
    guide = Agent(FakeModel(["4,478 m", "never"]), name="guide")

    @tool(idempotent=lambda args: args["peak"] != "Eiger")
    async def ask(peak: str, context: ToolContext) -> str:
        """Ask."""
        return str(await guide.run(peak, context=context))

    model = FakeModel([tool_call("ask", peak="Matterhorn"), "Done.", tool_call("ask", peak="Eiger")])
    agent = Agent(model, tools=[ask])
    state = State(messages=[Message.user("Go")])
    await agent.run(state)

    assert results(state) == ["4,478 m"]
    state.add_message(Message.user("And the Eiger?"))
    with pytest.raises(ConfigError, match="it is called again after a crash"):
        await agent.run(state)


def test_a_copy_keeps_what_depends_on_the_call_or_gets_its_own() -> None:
    """A flag in its place is meant for all calls, and what it contradicts has to be said too."""
    looks, changes = {"command": "ls", "folder": "."}, {"command": "rm", "folder": "."}
    kept = shell.copy(name="again").for_call(looks)
    fixed = shell.copy(read_only=True, destructive=False)

    assert (kept.read_only, kept.destructive) == (True, False)
    assert (fixed.for_call(changes).read_only, fixed.for_call(changes).destructive) == (True, False)
    assert shell.copy(read_only=lambda args: False).for_call(looks).destructive
    with pytest.raises(ToolDefinitionError, match="cannot be both"):
        shell.copy(read_only=True)
