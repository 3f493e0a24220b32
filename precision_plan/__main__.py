"""``python -m precision_plan`` and the console script.

``--version`` is answered before anything else is imported: tools ask for it at every start.
"""

import sys

from precision_plan._version import __version__


def main(argv: list[str] | None = None) -> int:
    """Run one command line and return its exit code (0 clean, 1 findings, 2 usage or input).

    ``argv`` is the command line of this process if it is not given.
    """
    if argv is None:
        return _main_of_process(sys.argv[1:])
    if argv in (["--version"], ["-V"]):
        sys.stdout.write(f"precision-plan {__version__}\n")
        return 0
    from precision_plan.cli import run

    return run(argv)


def _main_of_process(argv: list[str]) -> int:
    """The same without garbage collection.

    A run is short and keeps nearly all it allocates: collecting while modules load, and once
    more at exit, takes a tenth of its time and finds next to nothing.
    """
    import gc

    gc.disable()
    code = main(argv)
    gc.freeze()
    return code


if __name__ == "__main__":
    sys.exit(main())
