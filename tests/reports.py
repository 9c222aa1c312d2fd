#!/usr/bin/env python3
"""What GoogleTest's suites reported in DIRECTORY/SUITE/PROGRAM.xml.

reports.py skipped DIRECTORY   the cases that were skipped, by program and reason
reports.py failed DIRECTORY    the cases that failed, with what each said (at most 25 lines), what failed outside of
                               cases, and where suites stopped that did not end
"""

import collections
import pathlib
import sys
import xml.etree.ElementTree


def cases_of(directory):
    """(suite of ctest, program, case's element), in the order of their names."""
    for path in sorted(pathlib.Path(directory).rglob("*.xml")):
        try:
            cases = list(xml.etree.ElementTree.parse(path).iter("testcase"))
        except xml.etree.ElementTree.ParseError:
            continue  # it did not end, which ctest says
        for case in cases:
            yield path.parent.name, path.stem.rstrip("0123456789").rstrip("_"), case


def name_of(case):
    return f"{case.get('classname')}.{case.get('name')}"


def print_skipped(directory):
    found = collections.defaultdict(set)  # (program, reason) → cases
    for _, program, case in cases_of(directory):
        for skip in case.findall("skipped"):
            reason = " ".join(skip.get("message", "").split("\n")[1:]).strip() or "no reason"
            found[program, reason[:120]].add(name_of(case))
    for (program, reason), cases in sorted(found.items()):
        print(f"  {program}: {len(cases)} skipped, {min(cases)}{' …' if len(cases) > 1 else ''}: {reason}")
    print(f"{sum(map(len, found.values()))} cases skipped")


def print_failed(directory):
    for suite, _, case in cases_of(directory):
        for failure in case.findall("failure"):
            print(f"{suite}: {name_of(case)}")
            for line in failure.get("message", "").strip().split("\n")[:25]:
                print(f"    {line[:500]}")
    for path in sorted(pathlib.Path(directory).rglob("*.outside")):
        print(f"{path.parent.name}: outside of its cases")
        for line in path.read_text(errors="replace").strip().split("\n")[-25:]:
            print(f"    {line[:500]}")
    for path in sorted(pathlib.Path(directory).rglob("*.running")):
        print(f"{path.parent.name}: did not end; it had come to {path.read_text().strip()}")


if __name__ == "__main__":
    {"skipped": print_skipped, "failed": print_failed}[sys.argv[1]](sys.argv[2])
