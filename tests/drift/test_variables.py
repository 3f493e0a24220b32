"""Reads and writes of the environment, in every form that upstream uses."""

from __future__ import annotations

import pytest

from precision_plan.drift.modules import Modules
from precision_plan.drift.values import Values
from precision_plan.drift.variables import Environment, read_environment
from tests.drift import trees


def environment(*sources: str, without: tuple[str, ...] = (), **files: str) -> Environment:
    texts = {f"package/module{number}.py": text for number, text in enumerate(sources)}
    texts |= {f"package/{name.replace('__', '/')}.py": text for name, text in files.items()}
    modules = Modules(trees.tree({"package/__init__.py": "", **texts}))
    return read_environment(modules, Values(modules), "package", without)


@pytest.mark.parametrize(
    ("source", "default"),
    [
        ("import os\nos.getenv('NVTE_X', '1')", {"1"}),
        ("import os\nos.environ.get('NVTE_X', '1')", {"1"}),
        ("import os\nos.environ['NVTE_X']", set()),
        ("import os\n'NVTE_X' in os.environ", set()),
        ("import os\nif 'NVTE_X' not in os.environ: pass", set()),
        ("import os\nos.getenv('NVTE_X')", set()),
        ("import os as system\nsystem.getenv('NVTE_X', default=True)", {"1"}),
        ("from os import environ\nenviron.get('NVTE_X', 0)", {"0"}),
        ("from os import getenv as read\nread('NVTE_X', 'False')", {"0"}),
        ("import os\nNAME = 'NVTE_X'\ndef f():\n    return os.getenv(NAME, 'a')", {"a"}),
        ("def f():\n    import os\n    return bool(int(os.getenv('NVTE_X', '0')))", {"0"}),
        ("import os\nclass A:\n    x: bool = os.getenv('NVTE_X', '0') == '1'", {"0"}),
        ("import os\nos.getenv('NVTE_X', '0')\nos.getenv('NVTE_X', '1')", {"0", "1"}),
        ("import os\nos.getenv('NVTE_X', str(count))", {"computed: str(count)"}),
        ("import os\nT = {'NVTE_X': lambda: os.getenv('NVTE_X', 'auto')}", {"auto"}),
    ],
)
def test_read(source: str, default: set[str]) -> None:
    variable = environment(source).variables["NVTE_X"]
    assert variable.reads[0].startswith("package/module0.py:")
    assert not variable.writes
    assert variable.defaults == default


@pytest.mark.parametrize(
    "source",
    [
        "import os\nos.environ['NVTE_X'] = '1'",
        "import os\nos.environ.setdefault('NVTE_X', '1')",
        "import os\nos.environ.update({'NVTE_X': '1', **others})",
        "import os\ndel os.environ['NVTE_X']",
        "import os\nfor name in ('NVTE_X', 'NVTE_Y'):\n    os.environ[name] = '1'",
    ],
)
def test_write(source: str) -> None:
    variable = environment(source).variables["NVTE_X"]
    assert variable.writes
    assert not variable.reads and not variable.defaults


@pytest.mark.parametrize(
    "source",
    [
        "import os\nNAMES = ('NVTE_X', 'NVTE_Y')\nfor name in NAMES:\n    os.getenv(name)",
        "import os\nvalues = tuple(os.environ.get(name) for name in ['NVTE_X', 'NVTE_Y'])",
        "import os\nvalues = {name: os.getenv(name) for name in ['NVTE_X', 'NVTE_Y']}",
        "import os\nD = {'NVTE_X': 1, 'NVTE_Y': 2}\nfor n, d in D.items():\n    os.environ.get(n)",
        "import os\nfor a, n in [(1, 'NVTE_X'), (2, 'NVTE_Y')]:\n    n in os.environ",
    ],
)
def test_loops_over_constants(source: str) -> None:
    found = environment(source)
    assert {"NVTE_X", "NVTE_Y"} <= set(found.variables)
    assert not found.unnamed


READER = """
import os
def read(kind, name, default=None):
    return kind(os.getenv(name, default))
class Checker:
    def check(self, name):
        assert name in os.environ
    def run(self):
        self.check("NVTE_Z")
"""
CALLER = """
from package.reader import read
from package import reader
def read_other(name): pass
read(int, "NVTE_X")
reader.read(int, "NVTE_Y")
read_other("NVTE_NOT_READ")
read(int)
"""


def test_functions_that_read_what_they_are_told_to() -> None:
    found = environment(CALLER, reader=READER)
    assert {name: variable.reads for name, variable in found.variables.items()} == {
        "NVTE_X": ["package/module0.py:5"],
        "NVTE_Y": ["package/module0.py:6"],
        "NVTE_Z": ["package/reader.py:9"],
    }
    assert not found.unnamed


def test_a_name_that_is_built_at_run_time_is_listed() -> None:
    found = environment("import os\nos.getenv(f'{prefix}_HOME')\nos.getenv(known())\n")
    assert found.unnamed == ["package/module0.py:2", "package/module0.py:3"]


def test_what_is_not_the_environment() -> None:
    source = (
        "import os\nenviron = {}\nenviron['NVTE_X']\nother.getenv('NVTE_Y')\nos.path.get('NVTE_Z')"
    )
    assert environment(source).variables == {}


def test_quoted_names() -> None:
    found = environment('TEXT = "NVTE_X"\nOTHER = "lower_case"\nSENTENCE = "NVTE_Y is set"\n')
    assert found.quoted == {"NVTE_X"}


def test_parts_that_are_left_out() -> None:
    source = "import os\nos.getenv('NVTE_X')\n"
    found = environment(jax__module=source, setup=source, without=("package/jax/", "/setup.py"))
    assert found.variables == {}
    assert len(environment(jax__module=source, setup=source).variables["NVTE_X"].reads) == 2


def test_native_code() -> None:
    text = """
        // getenv in a comment without a name
        static bool on = transformer_engine::getenv<bool>("NVTE_A", false);
        const char *path = std::getenv("NVTE_B");
        int size = getenv<int>( "NVTE_C" , 20 );
        auto mode = getenv<std::string>("NVTE_D", "auto");
        int other = getenv<int>("NVTE_E", count(1));
    """
    modules = Modules(trees.tree({"package/common/code.cpp": text}))
    found = read_environment(modules, Values(modules), "package")
    assert found.has_native
    assert {name: variable.defaults for name, variable in found.variables.items()} == {
        "NVTE_A": {"0"},
        "NVTE_B": set(),
        "NVTE_C": {"20"},
        "NVTE_D": {"auto"},
        "NVTE_E": set(),
    }
    assert found.variables["NVTE_B"].reads == ["package/common/code.cpp:4"]
