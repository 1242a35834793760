"""`make venv` with the real make and interpreters that only say who they are."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

MAKEFILE = Path(__file__).parents[3] / "Makefile"
TOOLS = ("bash", "sh", "make", "rm", "touch", "cp", "mkdir", "chmod")  # no uv, no network
INTERPRETER = """#!/bin/sh
case "$1 $2" in
  *version_info*) exit {too_old} ;;
  -c*) echo "{name} (main) [a compiler, its version]" ;;
  "-m venv") mkdir -p "$3/bin"; cp "$0" "$3/bin/python"; cp "$0" "$3/bin/pip" ;;
esac
"""


class Tree:
    """A checkout of which make needs no more than this."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.marker = root / ".venv" / "marker"
        shutil.copy(MAKEFILE, root)
        for name in ("pyproject.toml", "requirements-dev.lock"):
            (root / name).touch()
        (root / "bin").mkdir()
        for tool in TOOLS:
            found = shutil.which(tool)
            assert found is not None, tool
            (root / "bin" / tool).symlink_to(found)

    def python(self, name: str, *, too_old: int = 0) -> Path:
        path = self.root / name
        path.write_text(INTERPRETER.format(name=name, too_old=too_old))
        path.chmod(0o755)
        return path

    def make(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        env = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "PYTHON"))}
        return subprocess.run(
            ["make", "venv", *arguments],
            cwd=self.root,
            env=env | {"PATH": str(self.root / "bin")},
            capture_output=True,
            text=True,
            check=False,
        )

    @property
    def installed(self) -> str:
        return (self.root / ".venv/bin/python").read_text()


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def test_another_python_than_that_of_the_venv_replaces_it(tree: Tree) -> None:
    """The one that is asked for is the one that runs; the same one again costs nothing."""
    first, second = tree.python("first"), tree.python("second")
    assert tree.make(f"PYTHON={first}").returncode == 0
    tree.marker.touch()
    again = tree.make(f"PYTHON={first}")
    assert (again.returncode, again.stderr) == (0, "")
    assert tree.marker.exists()
    other = tree.make(f"PYTHON={second}")
    assert other.returncode == 0, other.stderr
    assert "replacing .venv, which is of another Python" in other.stderr
    assert tree.installed == second.read_text()
    assert not tree.marker.exists()
    tree.marker.touch()
    unasked = tree.make()
    assert (unasked.returncode, unasked.stderr) == (0, "")
    assert tree.marker.exists()


@pytest.mark.parametrize("wanted", ["nowhere", "old"])
def test_a_python_that_cannot_be_used_costs_nobody_a_venv(tree: Tree, wanted: str) -> None:
    first = tree.python("first")
    tree.python("old", too_old=1)
    assert tree.make(f"PYTHON={first}").returncode == 0
    refused = tree.make(f"PYTHON={tree.root / wanted}")
    assert refused.returncode == 2
    assert "needs Python 3.11 or newer" in refused.stderr
    assert tree.installed == first.read_text()
