#!/usr/bin/env python3
"""Runs the commands of a .golden file and compares what they print.

A file is a list of blocks: "$ command" (pipedream is the built program), then the expected standard output and error, each line after "> "
or "! " in the order output, error; then "= N" where the exit code is not 0. Lines that start with "#" are comments. In expected lines "*" stands for any text.
usage: run_golden.py PROGRAM FILE [--update]
"""
import pathlib
import re
import subprocess
import sys
import tempfile


def blocks(text):
    block = None
    for line in text.splitlines():
        if line.startswith("$ "):
            if block:
                yield block
            block = {"command": line[2:], "expected": [], "comments": []}
        elif block is not None and line[:2] in ("> ", "! ", "= ", ">", "!"):
            block["expected"].append(line)
        elif block is None or line.startswith("#") or not line.strip():
            if block:
                yield block
            block = None
    if block:
        yield block


def run(program, command, root, scratch):
    environment = {"PATH": f"{pathlib.Path(program).parent}:/usr/bin:/bin", "HOME": scratch, "TMP": scratch, "NO_COLOR": "1", "LC_ALL": "C"}
    done = subprocess.run(["bash", "-c", command], cwd=root, env=environment, capture_output=True, text=True, timeout=100, stdin=subprocess.DEVNULL)
    lines = [f"> {line}".rstrip() for line in done.stdout.splitlines()] + [f"! {line}".rstrip() for line in done.stderr.splitlines()]
    if done.returncode != 0:
        lines.append(f"= {done.returncode}")
    return [line.replace(scratch, "$TMP") for line in lines]


def matches(expected, actual):
    return re.fullmatch(".*".join(re.escape(part) for part in expected.rstrip().split("*")), actual) is not None


def main():
    program, file = sys.argv[1:3]
    root = pathlib.Path(__file__).resolve().parent.parent.parent
    path = pathlib.Path(file)
    text = path.read_text()
    found = list(blocks(text))
    wrong = 0
    with tempfile.TemporaryDirectory() as scratch:
        for block in found:
            actual = run(program, block["command"], root, scratch)
            if "--update" in sys.argv:
                old = "\n".join(["$ " + block["command"]] + block["expected"])
                if not (len(block["expected"]) == len(actual) and all(map(matches, block["expected"], actual))):
                    text = text.replace(old, "\n".join(["$ " + block["command"]] + actual), 1)
                continue
            if len(block["expected"]) == len(actual) and all(map(matches, block["expected"], actual)):
                continue
            wrong += 1
            print(f"$ {block['command']}\n--- expected\n" + "\n".join(block["expected"]) + "\n--- printed\n" + "\n".join(actual) + "\n")
    if "--update" in sys.argv:
        path.write_text(text)
    print(f"{path.name}: {len(found)} commands, {wrong} differ")
    return 1 if wrong or not found else 0


if __name__ == "__main__":
    sys.exit(main())
