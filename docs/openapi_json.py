#!/usr/bin/env python3
"""Prints docs/openapi.yaml as JSON: openapi_json.py > openapi.json. The gateway serves the JSON."""
import json
import pathlib

import yaml

document = yaml.safe_load((pathlib.Path(__file__).parent / "openapi.yaml").read_text(encoding="utf-8"))
print(json.dumps(document, indent=1, ensure_ascii=False))
