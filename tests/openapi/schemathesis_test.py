#!/usr/bin/env python3
"""Requests that schemathesis makes up from /openapi.json, against a running gateway: no answer is a defect, none is
undocumented. Skipped (77) where scripts/install-deps.sh --tests has not made the tools' environment.

    schemathesis_test.py BUILD_DIR [max-examples]
"""

import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))
from served import Gateway, skip

TOOL = os.path.join(os.environ.get("ISOGATE_VENV", os.path.expanduser("~/.cache/isogate-venv")), "bin", "st")
CHECKS = "no_defect,status_code_conformance,content_type_conformance,response_schema_conformance"


def main():
    build, examples = os.path.abspath(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "15"
    if not os.access(TOOL, os.X_OK):
        skip(f"no {TOOL}; run scripts/install-deps.sh --tests")
    with tempfile.TemporaryDirectory(prefix="schemathesis-", dir=build) as directory:
        os.chmod(directory, 0o755)
        gateway = Gateway(build, "local", directory, {
            "on_shutdown": "remove", "exec": {"timeout_sec": 1, "max_timeout_sec": 1, "max_background_sec": 1}})
        try:
            return subprocess.run(
                [
                    TOOL, "run", f"{gateway.api}/openapi.json", "-H", f"Authorization: Bearer {gateway.key}",
                    "--checks", CHECKS, "--max-examples", examples, "--generation-deterministic",
                    "--phases", "examples,coverage,fuzzing", "--request-timeout", "30", "--continue-on-failure",
                    "--exclude-operation-id", "watchDirectory",  # its response has no end
                    # MCP defines what they refuse, and its own suite tests that.
                    "--exclude-operation-id", "mcp", "--exclude-operation-id", "mcpOfAgent",
                    "--suppress-health-check", "all", "--warnings", "off", "--no-color",
                ],
                env={**os.environ, "SCHEMATHESIS_HOOKS": "schemathesis_checks", "PYTHONPATH": HERE,
                     "HYPOTHESIS_STORAGE_DIRECTORY": f"{directory}/hypothesis"},
                cwd=directory,
            ).returncode
        finally:
            gateway.stop()


if __name__ == "__main__":
    sys.exit(main())
