"""Run `rollwise doctor`, and look at what it finds."""

import json

from rollwise.cli import main


def run(capsys, *arguments):
    code = main(["doctor", *map(str, arguments)])
    return code, capsys.readouterr().out


def state(found, name):
    [one] = [one for one in json.loads(found)["checks"] if one["name"] == name]
    return one
