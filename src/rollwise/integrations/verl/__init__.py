"""rollwise inside verl: its sessions, groups, advantages and prompt samplers on many machines.

`rollwise verl run.toml` starts a run. verl loads `plugin` by itself; the other modules need verl.
"""
