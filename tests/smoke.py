"""Try the installed command as a stranger would, without the source tree. Not a pytest file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any


def main(limen: str) -> None:
    """Seed, read, be denied, ask for rates, and verify the trail."""
    with tempfile.TemporaryDirectory() as folder:
        data = str(Path(folder) / "data")

        def run(*words: str, expected: int = 0) -> str:
            done = subprocess.run(
                [limen, *words, "--data", data],
                cwd=folder,
                capture_output=True,
                text=True,
                timeout=60,
                env={**os.environ, "LIMEN_ECB__SOURCE": "history"},
            )
            if done.returncode != expected:
                raise SystemExit(f"{words} ended with {done.returncode}: {done.stderr}")
            return done.stdout

        def call(tool: str, *arguments: str, expected: int, server: str = "desk") -> dict[str, Any]:
            said = run("call", server, tool, *arguments, "--json", expected=expected)
            return dict(json.loads(said)["result"]["structuredContent"])

        run("desk", "seed")
        read = call("docs_read", "path=public/handbook.txt", expected=0)
        denied = call("docs_read", "path=private/customer-secrets.txt", expected=1)
        window = ("currency=USD", "start=2026-03-30", "end=2026-04-10")
        rates = call("rates_window", *window, expected=0, server="ecb")
        run("audit", "verify")
        if read["ok"] is not True or denied["error"] != "denied":
            raise SystemExit(f"unexpected answers: {read} {denied}")
        if len(rates["observations"]) != 8 or rates["coverage"]["complete"] is not True:
            raise SystemExit(f"unexpected rates: {rates}")
    print(f"smoke test passed: {limen} served, denied, certified and verified")


if __name__ == "__main__":
    main(sys.argv[1])
