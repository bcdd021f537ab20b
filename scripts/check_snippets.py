#!/usr/bin/env python3
"""Code in docs that says "From `examples/FILE`" must be what stands between two "// [name]" lines of that file."""
import pathlib
import re
import sys

root = pathlib.Path(__file__).resolve().parent.parent
failures = 0
checked = 0
for page in sorted(root.glob("docs/*.md")) + [root / "README.md"]:
    if not page.exists():
        continue
    for source, code in re.findall(r"From `(examples/[^`]+)`[^\n]*\n\n```cpp\n(.*?)```", page.read_text(), re.S):
        checked += 1
        snippets = re.findall(r"// \[(\w+)\]\n(.*?)// \[\1\]\n", (root / source).read_text(), re.S)
        if code not in [text for _, text in snippets]:
            print(f"{page.relative_to(root)}: the code is not what stands in {source}", file=sys.stderr)
            failures += 1
print(f"{checked} snippets checked, {failures} differ")
sys.exit(1 if failures else 0)
