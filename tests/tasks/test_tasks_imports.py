"""The room is light to import: its heavy libraries are loaded where they are used."""

import subprocess
import sys


def test_importing_the_room_loads_no_heavy_library():
    heavy = {"torch", "transformers", "datasets", "pyarrow", "pandas"}
    code = f"import sys, rollwise.tasks; print(sorted({heavy!r} & set(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
