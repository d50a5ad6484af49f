"""One small program a peer, each run in an environment of its own; `catalog` lists them."""
