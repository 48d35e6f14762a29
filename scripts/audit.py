"""Look for known vulnerabilities of the packages that the constraints files pin, by pip-audit.

    python scripts/audit.py

A vulnerability ends it with 1, unless `ACCEPTED` says why it does no harm here. Where the registry
cannot be reached, or has no advisories, that is said, and it ends with 0.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]

ACCEPTED: dict[str, str] = {}
"""Advisory -> why it does no harm here."""

OUT_OF_REACH = ("ServiceError", "ConnectionError", "Timeout", "404", "403", "Max retries", "JSON")
"""What pip-audit says where there is nobody to ask."""


def main() -> int:
    """Audit each file of constraints; returns the exit code."""
    found: dict[str, str] = {}
    asked = 0
    for file in sorted(ROOT.glob("constraints*.txt")):
        answer = audit(file)
        if answer is None:
            print(f"{file.name}: not audited, for no advisories can be had here")
            continue
        asked += 1
        found |= answer
    for advisory, text in sorted(found.items()):
        print(f"{advisory}: {text}; {ACCEPTED.get(advisory, 'NOT ACCEPTED')}")
    print(f"{asked} files audited, {len(found)} vulnerabilities known")
    return int(any(advisory not in ACCEPTED for advisory in found))


def audit(constraints: Path) -> dict[str, str] | None:
    """Return the advisories on pinned packages: name -> package; None if nobody can be asked."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [sys.executable, "-m", "pip_audit", "-r", str(constraints), "--no-deps"]
        command += ["--disable-pip", "--progress-spinner", "off", "-f", "json", "-o", str(report)]
        try:
            ended = subprocess.run(command, capture_output=True, text=True, timeout=300)
        except subprocess.TimeoutExpired:
            return None
        if not report.exists():
            if any(word in ended.stderr for word in OUT_OF_REACH):
                return None
            raise SystemExit(ended.stderr)
        packages = json.loads(report.read_text())["dependencies"]
    if all("skip_reason" in package for package in packages):
        return None  # the registry has the packages, and says nothing of them
    return {
        each["id"]: f"{package['name']} {package['version']}"
        for package in packages
        for each in package.get("vulns", [])
    }


if __name__ == "__main__":
    sys.exit(main())
