"""Reads launchers that are written in Python: programs that put a command line together.

By their syntax tree alone; nothing is imported or run. ``reader.read_launcher`` is the entry.
"""
