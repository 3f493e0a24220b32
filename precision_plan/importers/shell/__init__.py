"""Reads bash scripts without running them: what they set, and which commands they start.

An abstract interpreter over the syntax tree: variables, arrays, functions, sourced files and
branches are followed; whatever only a run could tell (a command's output, a variable of the
environment, an argument of the caller) stays unknown. A condition that cannot be decided is
followed both ways.
"""
