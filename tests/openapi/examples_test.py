#!/usr/bin/env python3
"""Every example of docs/openapi.json fits its schema, and the document fits OpenAPI 3.1's own schema.

Exits 77 (skipped), saying so, where the Python packages are missing.
"""
import json
import pathlib
import sys

try:
    import jsonschema
except ImportError:
    print("skipped: the Python package jsonschema is not installed")
    sys.exit(77)

DOCUMENT = json.loads((pathlib.Path(__file__).parents[2] / "docs" / "openapi.json").read_text(encoding="utf-8"))
failures = []
checked = 0


def follow(value):
    while isinstance(value, dict) and "$ref" in value:
        target = DOCUMENT
        for part in value["$ref"].removeprefix("#/").split("/"):
            target = target[part]
        value = target
    return value


def check_media(media, where):
    global checked
    if "schema" not in media:
        return
    schema = dict(media["schema"], components=DOCUMENT["components"])
    validator = jsonschema.Draft202012Validator(schema)
    validator.check_schema(media["schema"])
    for name, example in media.get("examples", {}).items():
        checked += 1
        for error in validator.iter_errors(follow(example)["value"]):
            failures.append(f"{where}: example {name}: {error.message}")


def check_body(body, where):
    for kind, media in follow(body).get("content", {}).items():
        check_media(media, f"{where} {kind}")


for path, item in DOCUMENT["paths"].items():
    for method, operation in item.items():
        if method == "parameters":
            continue
        if "requestBody" in operation:
            check_body(operation["requestBody"], f"{method} {path} request")
        for status, response in operation["responses"].items():
            check_body(response, f"{method} {path} {status}")

try:
    from openapi_spec_validator import validate

    validate(DOCUMENT)
except ImportError:
    print("note: openapi-spec-validator is not installed, so OpenAPI's own schema was not checked")

if checked < 30:
    failures.append(f"only {checked} examples were found")
for failure in failures:
    print(failure)
print(f"{checked} examples, {len(failures)} failures")
sys.exit(1 if failures else 0)
