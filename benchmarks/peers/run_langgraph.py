"""
LangGraph with its two savers. A conversation is one run of a graph whose node adds a message a superstep.

`durability="sync"`: a checkpoint is saved before the next superstep starts. The saved history is loaded with
`aget_state`. With DeltaChannel, which is in beta, a checkpoint holds what is new and now and then the whole.
"""

from __future__ import annotations

import asyncio
import uuid
from contextlib import AsyncExitStack, suppress
from typing import Annotated, Any, TypedDict

from langchain_core.messages import AnyMessage, HumanMessage
from langgraph.channels import DeltaChannel
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import START, MessagesState, StateGraph
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool
from serving import TEXT, serve


def added(value: list[Any], writes: list[list[Any]]) -> list[Any]:
    """Reduce many writes at once, as a DeltaChannel wants it."""
    return [*value, *(message for write in writes for message in write)]


class Delta(TypedDict):
    """A checkpoint holds the new messages; with MessagesState it holds all."""

    messages: Annotated[list[AnyMessage], DeltaChannel(added)]


class Conversation:
    """One run of the graph; its node waits for what to add, so a superstep begins when the last one is saved."""

    def __init__(self, schema: type, saver: Any, id: str) -> None:
        self._asked: asyncio.Queue[int] = asyncio.Queue()
        self._entered: asyncio.Queue[None] = asyncio.Queue()
        self.graph = graph_of(schema, self._node).compile(checkpointer=saver)
        self._config = config_of(id)

    async def begin(self) -> None:
        """Start the run."""
        run = self.graph.ainvoke({"messages": []}, self._config, durability="sync")
        self._run = asyncio.create_task(run)
        await self._next()

    async def _node(self, state: Any) -> dict[str, Any]:
        await self._entered.put(None)
        count = await self._asked.get()
        return {"messages": [HumanMessage(TEXT, id=str(uuid.uuid4())) for _ in range(count)]}

    async def _next(self) -> None:
        entered = asyncio.create_task(self._entered.get())
        await asyncio.wait({entered, self._run}, return_when=asyncio.FIRST_COMPLETED)
        if self._run.done():
            entered.cancel()
            self._run.result()

    async def step(self) -> None:
        """Add one message in a superstep."""
        await self.fill(1)

    async def fill(self, count: int) -> None:
        """Add many messages in a superstep."""
        await self._asked.put(count)
        await self._next()

    async def close(self) -> None:
        """End the run where it stands."""
        self._run.cancel()
        with suppress(asyncio.CancelledError, Exception):
            await self._run


def graph_of(schema: type, node: Any) -> Any:
    """Return a graph that goes from its node to its node."""
    graph = StateGraph(schema)
    graph.add_node("step", node)
    graph.add_edge(START, "step")
    graph.add_conditional_edges("step", lambda _: "step", ["step"])
    return graph


def config_of(id: str) -> Any:
    """Return what names the thread, and allows as many supersteps as are needed."""
    return {"configurable": {"thread_id": id}, "recursion_limit": 1_000_000}


class Peer:
    """A saver."""

    schema: type = MessagesState

    async def open(self, place: str) -> None:
        """Open the saver and make its tables."""
        self._stack = AsyncExitStack()
        if place.startswith("postgres"):
            settings = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}
            pool: Any = AsyncConnectionPool(place, min_size=1, max_size=5, open=False, kwargs=settings)
            self._saver: Any = AsyncPostgresSaver(await self._stack.enter_async_context(pool))
        else:
            self._saver = await self._stack.enter_async_context(AsyncSqliteSaver.from_conn_string(place))
        await self._saver.setup()

    async def start(self, id: str) -> Conversation:
        """Start a run."""
        one = Conversation(self.schema, self._saver, id)
        await one.begin()
        return one

    async def load(self, id: str) -> int:
        """Read the newest state of a thread."""
        graph = graph_of(self.schema, lambda _: {}).compile(checkpointer=self._saver)
        return len((await graph.aget_state(config_of(id))).values["messages"])

    async def close(self) -> None:
        """Close the connections."""
        await self._stack.aclose()


class DeltaPeer(Peer):
    """A saver with DeltaChannel."""

    schema = Delta


if __name__ == "__main__":
    serve({"sqlite": Peer, "postgres": Peer, "delta": DeltaPeer, "delta-postgres": DeltaPeer})
