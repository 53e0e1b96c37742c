"""Dataframes: what computations read, and what they make of it, is shared."""
