"""Versioned records between callers and the agent, and the board they are pinned to."""
