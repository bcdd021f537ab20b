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


def blocks(lines):
    """The commands of a file: dicts of the command, its expected lines and where these begin and end."""
    found = []
    for number, line in enumerate(lines):
        if line.startswith("$ "):
            found.append({"command": line[2:], "expected": [], "begin": number + 1, "end": number + 1})
        elif found and found[-1]["end"] == number and line[:1] in (">", "!", "="):
            found[-1]["expected"].append(line)
            found[-1]["end"] = number + 1
    return found


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
    lines = path.read_text().splitlines()
    found = blocks(lines)
    wrong = 0
    written = []
    with tempfile.TemporaryDirectory() as scratch:
        for block in found:
            actual = run(program, block["command"], root, scratch)
            expected = block["expected"]
            if len(expected) == len(actual) and all(map(matches, expected, actual)):
                continue
            wrong += 1
            written.append((block["begin"], block["end"], actual))
            if "--update" not in sys.argv:
                print(f"$ {block['command']}\n--- expected\n" + "\n".join(expected) + "\n--- printed\n" + "\n".join(actual) + "\n")
    if "--update" in sys.argv:
        for begin, end, actual in reversed(written):
            lines[begin:end] = actual
        path.write_text("\n".join(lines) + "\n")
    print(f"{path.name}: {len(found)} commands, {wrong} {'updated' if '--update' in sys.argv else 'differ'}")
    return 1 if not found or (wrong and "--update" not in sys.argv) else 0


if __name__ == "__main__":
    sys.exit(main())
