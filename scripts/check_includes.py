#!/usr/bin/env python3
"""Who may include whom: reads every #include of pipedream/ and cli/ and compares it with the table of docs/architecture.md.

Linking alone does not prove it: Debian puts ATen under the system include path. Prints each forbidden include; exit code 1 if there is one.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
TORCH_PARTS = {"model", "data", "profiler", "comm", "runtime", "checkpoint", "cli"}
TORCH = re.compile(r"^(torch|ATen|c10|c10d|caffe2)/")


def allowed_edges() -> dict[str, set[str]]:
    """The table between the markers in docs/architecture.md: `part | may include a, b, c`."""
    text = (ROOT / "docs/architecture.md").read_text()
    table = text.split("<!-- includes:begin -->")[1].split("<!-- includes:end -->")[0]
    edges = {}
    for line in table.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if len(cells) == 2 and re.fullmatch(r"`\w+`", cells[0]):
            edges[cells[0].strip("`")] = set(re.findall(r"`(\w+)`", cells[1]))
    return edges


def main() -> int:
    edges = allowed_edges()
    wrong = []
    files = 0
    for top in ("pipedream", "cli"):
        for path in sorted((ROOT / top).rglob("*.[hc]pp")):
            files += 1
            relative = path.relative_to(ROOT)
            part = "cli" if top == "cli" else relative.parts[1]
            for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
                match = re.match(r'\s*#\s*include\s*[<"]([^>"]+)[>"]', line)
                if not match:
                    continue
                name = match.group(1)
                if name.startswith("pipedream/"):
                    target = name.split("/")[1]
                    if target != part and target not in edges.get(part, set()):
                        wrong.append(f"{relative}:{number}: {part} may not include {target} ({name})")
                elif name.startswith("cli/") and part != "cli":
                    wrong.append(f"{relative}:{number}: {part} may not include the program ({name})")
                elif TORCH.match(name):
                    if part not in TORCH_PARTS:
                        wrong.append(f"{relative}:{number}: {part} is free of torch, but includes {name}")
                    elif path.suffix == ".hpp" and name != "ATen/core/Tensor.h" and not relative.name.startswith("torch_"):
                        wrong.append(f"{relative}:{number}: our headers include ATen/core/Tensor.h at most, not {name}")
    print("\n".join(wrong + [f"{files} files, {len(wrong)} forbidden includes"]))
    return 1 if wrong or files == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
