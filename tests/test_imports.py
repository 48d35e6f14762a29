"""What tests, benchmarks and scripts import of ours exists, where they cannot run as well."""

import ast
from importlib.util import find_spec
from pathlib import Path


def names_in(path):
    """List the names that a module defines or imports at its top level, without running it."""
    waiting = [ast.parse(path.read_text(encoding="utf-8"))]
    while waiting:
        node = waiting.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            yield from (alias.asname or alias.name for alias in node.names)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        else:
            waiting += ast.iter_child_nodes(node)


def modules_in(source):
    """Map the name of each of the package's modules to its file, packages included."""
    for path in source.rglob("*.py"):
        parts = path.relative_to(source).with_suffix("").parts
        yield ".".join(("rollwise", *parts)).removesuffix(".__init__"), path


def missing(path, modules):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.ImportFrom) or node.module is None or node.level:
            continue
        if node.module in modules:
            known = {*names_in(modules[node.module])}
            inner = (name.rpartition(".") for name in modules)
            known |= {name for parent, _, name in inner if parent == node.module}
        elif node.module.startswith(("rollwise", "test_")):
            known = set()
        else:
            continue
        yield from (f"{node.module}:{a.name}" for a in node.names if a.name not in known)


def test_what_is_imported_of_ours_exists(root):
    folders = [root / name for name in ("tests", "benchmarks", "scripts", "examples")]
    paths = [path for folder in folders for path in folder.rglob("*.py")]
    modules = {path.stem: path for path in paths}
    modules |= modules_in(Path(find_spec("rollwise").origin).parent)
    found = {str(path.relative_to(root)): [*missing(path, modules)] for path in paths}
    assert {path: names for path, names in found.items() if names} == {}
