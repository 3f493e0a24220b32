"""Launch a recipe: ``python launch.py +recipe=qwen3-30b-fp8 [overrides] [dry_run=true]``.

A Hydra application: ``--help``, ``--cfg job``, ``--info defaults-tree``, ``-m`` sweeps and shell
completion are Hydra's own.
"""

import os
import sys
import tempfile
from pathlib import Path

import hydra

from precision_plan.cli._output import discard_output
from precision_plan.cli.launch import launch
from precision_plan.compose.hydra_plugin import current_job, register

CONF = Path(__file__).resolve().parent / "conf"
codes: list[int] = []


@hydra.main(version_base=None, config_path="conf", config_name="config")
def application(_: object) -> None:
    """One job of Hydra: composed anew from its overrides, so that positions are known."""
    job = current_job()
    codes.append(launch(job.overrides, conf_dir=job.conf_dir, search_paths=job.search_paths))


def is_for_hydra(argument: str) -> bool:
    """True for an option of Hydra's and for an override of its settings."""
    name = argument.lstrip("+~")
    is_setting = name.startswith(("hydra.", "hydra/")) and not name.startswith("hydra.searchpath=")
    return argument.startswith("-") or is_setting


def main(arguments: list[str]) -> int:
    """Run one command line and return its exit code: 0 clean, 1 findings, 2 nothing started."""
    if not any(map(is_for_hydra, arguments)):
        return launch(arguments, conf_dir=CONF)  # nothing that Hydra would add: the errors are ours
    register()
    with tempfile.TemporaryDirectory() as scratch:  # where Hydra notes what a sweep was
        os.environ["PRECISION_PLAN_SCRATCH"] = scratch
        try:
            application()
        except BrokenPipeError:  # ... --help | head
            discard_output()
            return 141
    return max(codes, default=0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
