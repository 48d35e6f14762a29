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


def missing(path, source):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.ImportFrom) or not (node.module or "").startswith("rollwise"):
            continue
        module = source.joinpath(*node.module.split(".")[1:])
        found = module / "__init__.py" if module.is_dir() else module.with_suffix(".py")
        known = {*names_in(found)} if found.exists() else set()
        known |= {each.stem for each in module.glob("*")}
        yield from (f"{node.module}:{a.name}" for a in node.names if a.name not in known)


def test_what_is_imported_of_ours_exists(root):
    source = Path(find_spec("rollwise").origin).parent
    paths = [
        p
        for folder in ("tests", "benchmarks", "scripts", "examples")
        for p in (root / folder).rglob("*.py")
    ]
    found = {str(path.relative_to(root)): [*missing(path, source)] for path in paths}
    assert {path: names for path, names in found.items() if names} == {}
