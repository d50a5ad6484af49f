"""The rules of `StoreContract`, a module a topic. Each test states one rule, and says how to keep it."""
