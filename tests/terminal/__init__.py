"""The terminal as reporter and as human."""
