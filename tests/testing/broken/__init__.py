"""Stores that each break one rule of the contract, and a contract for each."""
