#!/usr/bin/env python3
"""What GoogleTest's suites skipped, and why: skips.py DIRECTORY, of their XML reports."""

import collections
import pathlib
import sys
import xml.etree.ElementTree


def skipped(directory):
    """program → reason → cases"""
    found = collections.defaultdict(lambda: collections.defaultdict(set))
    for path in pathlib.Path(directory).glob("*.xml"):
        try:
            cases = list(xml.etree.ElementTree.parse(path).iter("testcase"))
        except xml.etree.ElementTree.ParseError:
            continue  # it did not end, which ctest says
        for case in cases:
            for skip in case.findall("skipped"):
                said = " ".join(skip.get("message", "").split("\n")[1:]).strip() or "no reason"
                found[path.stem.rstrip("0123456789").rstrip("_")][said[:120]].add(f"{case.get('classname')}.{case.get('name')}")
    return found


def main():
    found = skipped(sys.argv[1])
    for program, reasons in sorted(found.items()):
        for reason, cases in sorted(reasons.items()):
            print(f"  {program}: {len(cases)} skipped, {min(cases)}{' …' if len(cases) > 1 else ''}: {reason}")
    print(f"{sum(len(cases) for reasons in found.values() for cases in reasons.values())} cases skipped")


if __name__ == "__main__":
    main()
