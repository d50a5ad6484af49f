"""One of the demo's processes: `python -m alpineagents.cli.demo.worker`. It does the Job that it reads, and reports."""

from __future__ import annotations

import functools
import os
import threading

import anyio
import anyio.to_thread

from alpineagents.agent import Agent
from alpineagents.cli.demo.folder import Folder
from alpineagents.cli.demo.reader import FolderReader
from alpineagents.cli.demo.wire import QUESTION, Job, Report
from alpineagents.errors import AlpineAgentsError, StateBusyError
from alpineagents.events import ModelReplied, ToolFinished
from alpineagents.messages import Reply, Request
from alpineagents.models import Model, resolve_model
from alpineagents.models.base import Delta, Emit, Fallback, Retry
from alpineagents.runner import Item
from alpineagents.state import State
from alpineagents.stores import SQLStore
from alpineagents.terminal.gist import Gists, call_text
from alpineagents.terminal.text import one_line
from alpineagents.tools import Progress, ToolContext

LINE_LENGTH = 400
PATIENCE_SECONDS = 30.0
"""How long after the lease of a dead run a State may still be busy."""

_writing = threading.Lock()


def report(message: Report) -> None:
    """Tell the process that started this one; without it there is nothing to do here any more."""
    line = message.model_dump_json().encode() + b"\n"
    try:
        with _writing:
            while line:
                line = line[os.write(1, line) :]
    except BrokenPipeError:
        os._exit(1)


def read_line() -> bytes:
    """Wait for a word of the process that started this one, and end with it."""
    # Without a buffer: Python cannot end while a thread waits inside one.
    line = b""
    while not line.endswith(b"\n"):
        got = os.read(0, 1)
        if not got:
            os._exit(1)
        line += got
    return line


class Watched:
    """
    Reports what an Agent does; in a process that is to die, keeps one call inside its tool.

    Args:
        folder_is_empty: then no file will be read, and the call that lists them is the one to stay in.
    """

    def __init__(self, part: str, *, folder_is_empty: bool) -> None:
        self._part, self._held_tool = part, "list_files" if folder_is_empty else "read_file"
        self._gists = Gists()

    def know(self, state: State) -> None:
        """Learn what happened before, so that results can be told with their calls."""
        for event in state.history:
            self._gists.of(event)

    async def saved(self, item: Item) -> None:
        """Report an Event that is in the database now."""
        if isinstance(item, (Delta, Retry, Fallback, Progress)):
            return
        line = f"{item.revision:>3}  {item.kind:<15}  {one_line(self._gists.of(item), LINE_LENGTH)}"
        calls = tuple(call.id for call in item.message.tool_calls) if isinstance(item, ModelReplied) else ()
        call_id = item.call_id if isinstance(item, ToolFinished) else ""
        report(Report(kind="saved", line=line, calls=calls, call_id=call_id))

    def entered(self, context: ToolContext) -> None:
        """Report that a tool was entered; it runs in a thread of its own."""
        calls = [state.call for state in context.state.snapshot().calls.values()]
        line = next((call_text(call) for call in calls if call.id == context.call_id), context.tool_name)
        line = one_line(line, LINE_LENGTH)
        key = context.idempotency_key
        report(Report(kind="entered", line=line, call_id=context.call_id, attempt=context.attempt, key=key))
        held = next((call.id for call in calls if call.name == self._held_tool), None)
        if self._part == "dies" and context.call_id == held:
            report(Report(kind="held", line=line, call_id=context.call_id))
            read_line()


class Paused:
    """A Model that says when it is asked for the first time, and waits for a word before it answers."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._waits = True

    @property
    def name(self) -> str:
        """That of the model inside."""
        return self._model.name

    async def respond(self, request: Request, *, emit: Emit | None = None) -> Reply:
        """Wait, then let the model inside answer."""
        if self._waits:
            self._waits = False
            report(Report(kind="asked"))
            await anyio.to_thread.run_sync(read_line, abandon_on_cancel=True)
        return await self._model.respond(request, emit=emit)

    async def aclose(self) -> None:
        """Close the model inside."""
        await self._model.aclose()


async def work(job: Job) -> None:
    """Do the Job; report the answer, or the error that ended it."""
    watched = Watched(job.part, folder_is_empty=Folder(job.folder).is_empty())
    folder = Folder(job.folder, watched.entered)
    model = FolderReader() if job.model is None else resolve_model(job.model)
    async with SQLStore(job.store, migrate=True) as store:
        agent = Agent(
            Paused(model) if job.part == "races" else model,
            system="Answer from what the files of the folder say. List them first, then read the few that tell most.",
            tools=[folder.list_files, folder.read_file],
            store=store,
            name="folder-guide",
            lease=job.lease,
            reporter=watched.saved,
        )
        if job.part != "dies":
            watched.know(await store.load(job.state_id))
        try:
            answer = await _run(agent, job)
        except AlpineAgentsError as error:
            report(Report(kind="refused", error=type(error).__name__, line=one_line(str(error), LINE_LENGTH)))
        else:
            report(Report(kind="answered", line=str(answer)))
        finally:
            await agent.aclose()


async def _run(agent: Agent, job: Job) -> object:
    if job.part == "dies":
        return await agent.run(QUESTION, id=job.state_id)
    if job.part == "races":
        report(Report(kind="ready"))
        await anyio.to_thread.run_sync(read_line)
        return await agent.resume(job.state_id)
    with anyio.fail_after(PATIENCE_SECONDS):
        refused = False
        while True:
            try:
                return await agent.resume(job.state_id)
            except StateBusyError as error:
                if not refused:
                    report(Report(kind="waiting", error=type(error).__name__, line=one_line(str(error), LINE_LENGTH)))
                refused = True
                await anyio.sleep(0.1)


def main() -> None:
    """Read the Job and do it."""
    anyio.run(functools.partial(work, Job.model_validate_json(read_line())))


if __name__ == "__main__":
    main()
