"""A chat over HTTP. Any number of these processes may share one database."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, HTTPException
from fastapi.responses import StreamingResponse

from alpineagents import Agent, Delta, Message, SQLStore, State, StateBusyError, StateExistsError, StateNotFoundError

store = SQLStore(os.environ.get("DATABASE_URL", "web.db"), migrate=True)
agent = Agent(os.environ.get("EXAMPLE_MODEL", "claude-sonnet-5"), store=store)


@asynccontextmanager
async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
    """Open the store with the app and close it at the end."""
    async with store:
        yield


app = FastAPI(lifespan=lifespan)


@app.post("/chats/{chat}")
async def say(chat: str, text: str) -> str:
    """Answer a message; the first one starts the chat."""
    try:
        answer = await agent.resume(chat, text) if await store.exists(chat) else await agent.run(text, id=chat)
    except (StateBusyError, StateExistsError) as error:
        raise HTTPException(409, str(error)) from error
    return str(answer)


@app.post("/chats/{chat}/stream")
async def stream(chat: str, text: str) -> StreamingResponse:
    """Answer a message as the answer comes; a client that goes away ends the run."""
    state = await store.load(chat) if await store.exists(chat) else State(id=chat)
    state.add_message(Message.user(text))

    async def deltas() -> AsyncIterator[str]:
        async with agent.stream(state) as items:
            async for item in items:
                if isinstance(item, Delta) and item.kind == "text":
                    yield item.text

    return StreamingResponse(deltas(), media_type="text/plain")


@app.get("/chats/{chat}")
async def read(chat: str) -> list[dict[str, str]]:
    """Show what was said."""
    try:
        state = await store.load(chat)
    except StateNotFoundError as error:
        raise HTTPException(404, str(error)) from error
    return [{"role": message.role, "text": message.text} for message in state.messages]
