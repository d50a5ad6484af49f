"""A chat that remembers: kill it at any time and go on with `--resume`."""

import os
import sys

from alpineagents import Agent, Message, SQLStore, State

store = SQLStore("chat.db")
agent = Agent(os.environ.get("EXAMPLE_MODEL", "claude-sonnet-5"), system="You are a helpful assistant.", store=store)


def said() -> Message:
    """Ask the person for something to say."""
    while not (text := input("> ").strip()):
        pass
    return Message.user(text)


def main() -> None:
    """Talk until the person leaves with Ctrl+D or Ctrl+C."""
    saved = store.list_sync(limit=1) if "--resume" in sys.argv else []
    state = store.load_sync(saved[0].id) if saved else State()
    try:
        if state.answer is not None or not state.messages:
            state.add_message(said())
        while True:
            print(agent.run_sync(state))
            state.add_message(said())
    except (EOFError, KeyboardInterrupt):
        print("\nSaved. Go on with --resume")
    finally:
        store.close_sync()


if __name__ == "__main__":
    main()
