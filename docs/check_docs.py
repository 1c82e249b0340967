#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""check_docs.py SOURCE HEADER... [--tool RESHARD]: the documentation says what is there.

Every header of the list has its line in docs/reference/headers.md, and no other; every relative link resolves, anchors too; every
```cpp block occurs in a file of examples/, whitespace aside; every row of figures, in the README and on their page, is one that
tools/figures measures, and the README's stand on that page with the same value; every page is reached from docs/README.md and says its licence; no word has two rows in the glossary; the page of names is what names.py writes. With the tool: what it is shown to print, it prints, and
the README's picture is what it draws."""
import ast
import json
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

source, headers = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2:]
tool = None
if "--tool" in headers:
    tool = pathlib.Path(headers[headers.index("--tool") + 1]).resolve()
    headers = headers[:headers.index("--tool")]
docs = source / "docs"
pages = [source / "README.md", *sorted(docs.rglob("*.md"))]
faults, seen = [], 0


def fault(page, text):
    faults.append(f"{page.relative_to(source)}: {text}")


def squeezed(text):
    return " ".join(text.split())


def prose(text):
    """A page without its fenced blocks and code spans."""
    return re.sub(r"`[^`\n]*`", "", re.sub(r"^```.*?^```", "", text, flags=re.S | re.M))


def anchors(page):
    """What GitHub calls the headings of a page."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.S | re.M)
    return {re.sub(r"[^\w\- ]", "", h.strip().lower()).replace(" ", "-") for h in re.findall(r"^#+ (.+)$", text, flags=re.M)}


def figure_names():
    """Patterns of the names in tools/figures: first arguments of row(...), and keys of the table `goals`."""
    names = []
    for node in ast.walk(ast.parse((source / "tools" / "figures").read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("row", "ratio_over_lines"):
            first = node.args[0]
            if isinstance(first, ast.Constant):
                names.append(re.escape(first.value))
            elif isinstance(first, ast.JoinedStr):
                names.append("".join(re.escape(v.value) if isinstance(v, ast.Constant) else ".+" for v in first.values))
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "goals":
            names += [re.escape(key.value) for key in node.value.keys]
    return names


# Headers
listed = re.findall(r"^\| `(reshard/[\w/]+\.(?:hpp|cuh))` \|", (docs / "reference" / "headers.md").read_text(), flags=re.M)
for header in headers:
    seen += 1
    if header not in listed:
        fault(docs / "reference" / "headers.md", f"{header} has no line; docs/names.py writes one")
for header in listed:
    if header not in headers:
        fault(docs / "reference" / "headers.md", f"{header} is no header of include/meson.build")

# Links, licences, and that nothing is out of reach
reached = set()
for page in pages:
    text = page.read_text()
    if not text.startswith("<!-- SPDX-License-Identifier: Apache-2.0 -->\n"):
        fault(page, "does not begin with its SPDX line")
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(text)):
        seen += 1
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        if not there.exists():
            fault(page, f"the link {target} leads nowhere")
        elif anchor and anchor not in anchors(there):
            fault(page, f"the link {target} leads to no heading")
        if page.parent == docs:
            reached.add(there)
for page in pages[1:]:
    if page not in reached and page != docs / "README.md":
        fault(page, "is not linked from docs/README.md")

# The glossary: a word means one thing
words = [word for row in re.findall(r"^\| ([^|]+) \|", (docs / "reference" / "glossary.md").read_text(), flags=re.M) for word in row.split(", ")]
for word in sorted({word for word in words if words.count(word) > 1} - {"word", "---"}):
    fault(docs / "reference" / "glossary.md", f"{word} has two rows")

# The page of names
sys.path.insert(0, str(docs))
sys.dont_write_bytecode = True
import names  # noqa: E402

seen += 1
if (docs / "reference" / "names.md").read_text() != names.page(source):
    fault(docs / "reference" / "names.md", "is not what docs/names.py writes; run it")

told = (docs / "reference" / "headers.md").read_text()
lines = [line for line in told.split("\n") if line.startswith("| `reshard/base/")]
without = told.replace(lines[0] + "\n", "", 1)  # a line is put behind the last of its room, of what the header says of itself
put = f"{lines[-1]}\n| `{lines[0].split('`')[1]}` | "
seen += 1
if names.with_lines(told, source) != told or put not in names.with_lines(without, source):
    fault(docs / "names.py", "with_lines changes a whole page of headers, or does not put a line that is missing behind its room's last")

# Code that is shown is code that is compiled
programs = {p.relative_to(source): squeezed(p.read_text()) for p in sorted((source / "examples").rglob("*.[ch]pp"))}
for page in pages:
    for block in re.findall(r"^```cpp\n(.*?)^```", page.read_text(), flags=re.S | re.M):
        seen += 1
        if not any(squeezed(block) in text for text in programs.values()):
            fault(page, f"this block occurs in no file of examples/:\n{block}")

# Figures
readme = (source / "README.md").read_text()
measured, told = figure_names(), {}
for page in (docs / "reference" / "figures.md", source / "README.md"):
    marked = re.search(r"<!-- figures -->\n(.*?)<!-- /figures -->", page.read_text(), flags=re.S)
    if not marked:
        fault(page, "has no block between <!-- figures --> and <!-- /figures -->")
    rows = re.findall(r"^\| *(.*?) *\|(.*)", marked[1] if marked else "", flags=re.M)[2:]
    if page.name == "figures.md":
        told = dict(rows)
    for row, rest in rows:
        seen += 1
        if not any(re.fullmatch(name, row) for name in measured):
            fault(page, f"tools/figures measures nothing called '{row}'")
        if told.get(row) != rest:
            fault(page, f"'{row}' is not what docs/reference/figures.md says")

# What the tool is shown to print
COMMAND = "build/tools/reshard "
SPDX = "<!-- SPDX-License-Identifier: Apache-2.0 -->\n"


def run_tool(command, *more):
    done = subprocess.run([tool, *shlex.split(command.removeprefix(COMMAND)), *more], cwd=source, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return done.stdout


for page in pages if tool else []:
    for command, shown in re.findall(r"^```sh\n(" + COMMAND + r"[^\n]*)\n```\n```text\n(.*?)^```", page.read_text(), flags=re.S | re.M):
        seen += 1
        if shown.rstrip() not in run_tool(command):
            fault(page, f"`{command}` does not print what is shown")
if tool:
    # rows of simulated seconds: `arguments` | what others measured, or nothing | floor | direct | this plan | asynchronous | naive
    page = docs / "explanation" / "simulated-seconds.md"
    for command, *told in re.findall(r"^\| `([^`]+)` \|(?: [^|]* \|)?" + r" ([\d.]+) \|" * 5 + "$", page.read_text(), flags=re.M):
        seen += 1
        found = json.loads(run_tool("simulate " + command, "--json"))
        policy = found["dynatrain"]
        if told != [f"{value:.3f}" for value in (found["floor_seconds"], found["direct_seconds"], found["seconds"], policy["asynchronous"], policy["naive"])]:
            fault(page, f"simulate does not say this of `{command}`")
    seen += 1
    command = re.search(r"`(" + COMMAND + r"regions [^`]*) --svg docs/images/regions.svg`", readme)[1]
    with tempfile.TemporaryDirectory() as room:
        drawn = pathlib.Path(room, "regions.svg")
        run_tool(command, "--svg", str(drawn))
        if SPDX + drawn.read_text() != (docs / "images" / "regions.svg").read_text():
            fault(docs / "images" / "regions.svg", f"is not what `{command}` draws, after its SPDX line; draw it again")

for text in faults:
    print(text)
print(f"{seen} things looked at")
print(f"{max(len(pages) - len(faults), 0)} passed, {len(faults)} failed")
sys.exit(bool(faults))
