"""Rewriting of graphs, so that their shared parts are visible and kept parts are left out."""
