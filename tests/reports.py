#!/usr/bin/env python3
"""What suites reported: those of GoogleTest in DIRECTORY/SUITE/PROGRAM.xml, others in what they printed.

reports.py skipped DIRECTORY LOG
                               the cases that were skipped, by program and reason; of other suites the lines in LOG (all
                               logs of ctest, which have the output of each suite) that say so
reports.py counts DIRECTORY    how many cases passed, failed and were skipped; exits with 1 if none passed or failed
reports.py failed DIRECTORY SAID
                               the cases that failed, with how what each said begins and ends (ctest has printed all of
                               it), what failed outside of cases, and where suites stopped that did not end; of suites
                               that fail otherwise the end of what ctest printed for them, which is in the file SAID
"""

import collections
import pathlib
import re
import sys
import xml.etree.ElementTree


def cases_of(directory):
    """(suite of ctest, program, case's element), in the order of their names."""
    for path in sorted(pathlib.Path(directory).rglob("*.xml")):
        try:
            cases = list(xml.etree.ElementTree.parse(path).iter("testcase"))
        except xml.etree.ElementTree.ParseError:
            continue  # it did not end, which ctest reports
        for case in cases:
            yield path.parent.name, path.stem.rstrip("0123456789").rstrip("_"), case


def without_trace(message):
    """What SCOPED_TRACE adds, to a skip as to a failure, differs from case to case."""
    return message.split("\nGoogle Test trace:\n")[0]


def name_of(case):
    return f"{case.get('classname')}.{case.get('name')}"


def skipped_in(log):
    """(suite, line): how unittest, pytest -rs, and scripts that end with 77 say it."""
    suite = None
    for line in pathlib.Path(log).read_text(errors="replace").split("\n"):
        begun = re.match(r"\d+/\d+ Test: (\S+)$", line)
        suite = begun.group(1) if begun else suite
        if re.match(r"(SKIPPED \[\d+\]|SKIPPED:|(.* )?skipped(:| ')) *\S", line, re.IGNORECASE):
            yield suite, line.strip()


def print_skipped(directory, log):
    found = collections.defaultdict(set)  # (program, reason) → cases
    for _, program, case in cases_of(directory):
        for skip in case.findall("skipped"):
            lines = without_trace(skip.get("message", "")).split("\n")
            reason = " ".join(lines[1:]).strip() or "no reason"
            found[program, reason[:120]].add(name_of(case))
    for (program, reason), cases in sorted(found.items()):
        print(f"  {program}: {len(cases)} skipped, {min(cases)}{' …' if len(cases) > 1 else ''}: {reason}")
    print(f"{sum(map(len, found.values()))} cases skipped")
    for suite, line in sorted(set(skipped_in(log))):
        print(f"  {suite}: {line[:200]}")


def print_counts(directory):
    counts = collections.Counter(
        next((end for end in ("failure", "skipped") if case.find(end) is not None), "passed")
        for _, _, case in cases_of(directory)
        if case.get("status") == "run"
    )
    print(f"{counts['passed']} cases passed, {counts['failure']} failed, {counts['skipped']} were skipped")
    if counts["passed"] + counts["failure"] == 0:
        sys.exit(1)


def output_of_failed(said):
    """suite → what it printed, as `ctest --output-on-failure` shows it after the suite's line."""
    found, lines = {}, None
    for line in pathlib.Path(said).read_text(errors="replace").split("\n"):
        done = re.match(r" *\d+/\d+ +Test +#\d+: (\S+) \.*(.*)", line)
        if done or re.match(r" +Start +\d+: ", line):
            failed = done and re.match(r"\*\*\*(Failed|Timeout|Exception)", done.group(2))
            lines = found.setdefault(done.group(1), []) if failed else None
        elif lines is not None:
            lines.append(line)
    return found


def print_lines(lines):
    for line in lines:
        print(f"    {line[:240]}")


def print_ends(text):
    """A message and the log of a gateway, mostly: it is the end of the log that says what went wrong."""
    lines = text.strip().split("\n")
    print_lines(lines if len(lines) <= 16 else [*lines[:5], f"… {len(lines) - 15} lines …", *lines[-10:]])


def print_end(text):
    print_lines(text.strip().split("\n")[-15:])


def print_failed(directory, said):
    told = set()
    for suite, _, case in cases_of(directory):
        for failure in case.findall("failure"):
            told.add(suite)
            print(f"{suite}: {name_of(case)}")
            print_ends(without_trace(failure.get("message", "")))
    for path in sorted(pathlib.Path(directory).rglob("*.outside")):
        told.add(path.parent.name)
        print(f"{path.parent.name}: outside of its cases")
        print_end(path.read_text(errors="replace"))
    for path in sorted(pathlib.Path(directory).rglob("*.running")):
        try:
            last = path.read_text().strip()
        except FileNotFoundError:
            continue  # a suite that outlived ctest has ended just now
        print(f"{path.parent.name}: did not end; its last case was {last}")
    for suite, lines in output_of_failed(said).items():
        if suite not in told:
            print(f"{suite}: the end of what it printed")
            print_end("\n".join(lines))


if __name__ == "__main__":
    {"skipped": print_skipped, "failed": print_failed, "counts": print_counts}[sys.argv[1]](*sys.argv[2:])
