"""Launch a recipe: ``python launch.py +recipe=qwen3-30b-fp8 [overrides] [dry_run=true]``.

A Hydra application: ``--help``, ``--cfg job``, ``--info defaults-tree``, ``-m`` sweeps and shell
completion are Hydra's own.
"""

import os
import sys
import tempfile
from pathlib import Path

import hydra

from precision_plan.cli.launch import launch
from precision_plan.compose.hydra_plugin import current_job, register

CONF = Path(__file__).resolve().parent / "conf"
codes: list[int] = []


@hydra.main(version_base=None, config_path="conf", config_name="config")
def application(_: object) -> None:
    """One job of Hydra: composed anew from its overrides, so that positions are known."""
    job = current_job()
    codes.append(launch(job.overrides, conf_dir=job.conf_dir, search_paths=job.search_paths))


def main(arguments: list[str]) -> int:
    """Run one command line and return its exit code: 0 clean, 1 findings, 2 nothing started."""
    if not any(argument.startswith(("-", "hydra.", "hydra/")) for argument in arguments):
        return launch(arguments, conf_dir=CONF)  # no option of Hydra's: the messages are ours
    register()
    with tempfile.TemporaryDirectory() as scratch:  # where Hydra notes what a sweep was
        os.environ["PRECISION_PLAN_SCRATCH"] = scratch
        application()
    return max(codes, default=0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
