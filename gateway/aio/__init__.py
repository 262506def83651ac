"""Helpers over asyncio: the clock, turns of the event loop for long work, and supervised tasks."""
