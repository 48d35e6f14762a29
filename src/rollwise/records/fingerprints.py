"""What must not change between a command and its continuation: its settings, and what it read.

What was read is compared by fingerprints, which are hashes.
"""

import hashlib
import json
import logging
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rollwise.config.model import BUILT_IN_NAMES, looks_local
from rollwise.errors import ConfigError, RunError
from rollwise.plugins import is_plugin, objects_in_memory, plugin_folders, source_of
from rollwise.records.metrics import flatten
from rollwise.tasks import Problem

BLOCK = 2**16
"""Bytes that are read at a time; of a file of more than 256 blocks, 256 of them."""

WEIGHTS = ("config.json", "generation_config.json", "adapter_config.json", "*.safetensors")
TOKENIZER = ("tokenizer*", "*tokens*.json", "vocab.*", "merges.txt", "*.jinja", "*.model")
"""Files of a model's folder."""

log = logging.getLogger(__name__)


def of_problems(problems: Iterable[Problem]) -> dict[str, str]:
    """Return hashes of the `texts`, the `answers` and the other `columns`, in this order."""
    hashes = {name: hashlib.blake2b(digest_size=8) for name in ("texts", "answers", "columns")}
    for problem in problems:
        key, messages, answer, *further = vars(problem).values()
        for each, part in zip(hashes.values(), ([key, messages], answer, further), strict=True):
            each.update(json.dumps(part, default=repr).encode() + b"\n")
    return {name: each.hexdigest() for name, each in hashes.items()}


def of_settings(config: Any, weights: bool = True) -> dict[str, dict[str, str]]:
    """Return hashes of the model and the user's `code` that a command's settings name.

    The model has `tokenizer` and, with `weights`, these too; there are none of one on the hub. Of
    the code, only the modules that are named are read.
    """
    model, kinds = Path(config.model.path).expanduser(), dict[str, tuple[str, ...]]()
    if config.model.path not in BUILT_IN_NAMES and looks_local(config.model.path):
        kinds = {"tokenizer": TOKENIZER} | ({"weights": WEIGHTS} if weights else {})
    code = {}
    for name in filter(is_plugin, flatten(asdict(config), ".").values()):
        module = name.partition(":")[0].replace(".", "/")
        folders = map(Path, plugin_folders(config.plugin_folder))
        files = [folder / f"{module}{end}" for folder in folders for end in (".py", "/__init__.py")]
        if found := [file for file in files if file.is_file()]:
            code[name] = hash_files(found[:1])
        elif name in (known := objects_in_memory()):
            source = source_of(known[name]).encode()
            code[name] = hashlib.blake2b(source, digest_size=8).hexdigest()
    hashes = {kind: hash_files(f for p in kinds[kind] for f in model.glob(p)) for kind in kinds}
    return {"the model": hashes, "code": code}


def hash_files(files: Iterable[Path]) -> str:
    """Hash names, sizes and contents of files; of large ones, blocks that are evenly spread.

    Other weights differ nearly everywhere.
    """
    digest = hashlib.blake2b(digest_size=8)
    try:
        for path in sorted(file for file in set(files) if file.is_file()):
            size = path.stat().st_size
            digest.update(f"{path.name} {size}\n".encode())
            with path.open("rb") as file:
                for place in range(0, size, max(BLOCK, size // 255)):
                    file.seek(min(place, max(0, size - BLOCK)))
                    digest.update(file.read(BLOCK))
    except OSError as error:
        raise RunError(f"cannot read {error.filename}: {error.strerror}") from error
    return digest.hexdigest()


def refuse_other_data(path: Path, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Refuse to go on in the folder `path` if what it read has changed since it was begun.

    Both are fingerprints by what was read and its part: `{"the model": {"weights": "5e1f"}}`. Of
    `code` a warning says so: a fix may be why a command is repeated.
    """
    old, new = flatten(before, "/"), flatten(now, "/")
    changed = [name.rpartition("/") for name in new if old.get(name, new[name]) != new[name]]
    if data := [f"the {part} of {what}" for what, _, part in changed if what.startswith("the ")]:
        raise RunError(
            f"{' and '.join(data)} changed since {path} was begun: put back what was read then, or "
            "give another --output to begin with what there is now"
        )
    for *_, part in changed:
        said = "%s changed since %s was begun: earlier rewards stay; another --output begins anew"
        log.warning(said, part, path)


def refuse_changes(
    path: Path, before: Mapping[str, Any], now: Mapping[str, Any], changeable: tuple[str, ...]
) -> None:
    """Refuse to resume in `path` with other settings than recorded, but for `changeable` ones."""
    old, new = flatten(before, "."), flatten(now, ".")
    for key in new | old:
        if new.get(key) != old.get(key) and not key.startswith(changeable):
            raise ConfigError(
                f"`{key}` cannot change when a run is resumed: the run in {path} has "
                f"{old.get(key)!r}, and this command {new.get(key)!r} (given, or by default). To "
                "resume with the recorded settings, give `--resume` alone; for another run, give "
                "another --output"
            )
