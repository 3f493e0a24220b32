"""Print the JSON Schema of a recipe, which editors complete and check against."""

from __future__ import annotations

from argparse import Namespace

from precision_plan.cli._arguments import Parser, add_destination
from precision_plan.cli._output import emit


def configure(parser: Parser) -> None:
    """Options of the verb."""
    add_destination(parser)


def run(args: Namespace) -> int:
    """Print or write the schema; always 0."""
    import json

    from precision_plan.plan.schema import recipe_schema

    emit(json.dumps(recipe_schema(), indent=2) + "\n", args.output)
    return 0
