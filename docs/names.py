#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""names.py SOURCE: writes docs/reference/names.md, every public name with what its comment says first; and in docs/reference/headers.md a line for
each header of include/meson.build that has none there: what the header says of itself first, and the test of its own path where there is one.

A name is public where a header of include/ declares it at the left edge, outside namespaces called detail. Headers are read as
clang-format leaves them."""
import pathlib
import re
import sys


def blanked(text):
    """The text with comments and literals emptied, lines and columns kept."""
    pattern = re.compile(r'R"(\w*)\(.*?\)\1"|//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\'', re.S)
    return pattern.sub(lambda m: re.sub(r"[^\n]", " ", m[0]), text)


DECLARATIONS = (r"using (?:\w+::)+(\w+);",
                r"(?:class|struct|enum class|enum|concept|using) (\w+)\b(?!;)",
                r"(?:inline )?constexpr [\w:<>, ]+?[ &*]+(\w+)(?:\[\w*\])*(?: =|\{)",
                r"(?:\[\[\w+\]\] )?(?:inline |constexpr )*[\w:<>,&* ]*?[&* ](?!operator)(\w+)\(")
NO_NAME = r"(template|requires|static_assert|using namespace|(inline )?namespace|#|extern|friend)\b|[^a-zA-Z\[]|$"


def public_names(text):
    """(line, name) of the declarations."""
    depth, hidden, inside = 0, None, ""  # of braces; of the namespace that hides; the one within reshard
    for n, line in enumerate(blanked(text).split("\n")):
        if hidden is None and re.match(r"namespace (\w+::)*detail\b", line):
            hidden = depth
        depth += line.count("{") - line.count("}")
        if hidden is not None:
            hidden = None if depth <= hidden else hidden
            continue
        if within := re.match(r"namespace (\w+) \{", line):
            inside = within[1] + "::" if within[1] not in ("reshard", "literals") else ""
        if line.startswith("}"):
            inside = ""
        if key := re.match(r"RESHARD_DEGREE\((\w+)\);", line):
            yield n, key[1]
            continue
        found = None if re.match(NO_NAME, line) else next(filter(None, (re.match(d, line) for d in DECLARATIONS)), None)
        if found:
            yield n, inside + found[1]
            for more in re.findall(r"(?<=\d), (\w+) = -?\d+", line) if "constexpr int " in line else []:
                yield n, inside + more


def first_sentence(lines, n):
    """Of the comment above a declaration, or behind it."""
    above = n - 1
    while above >= 0 and re.match(r"\s*(template|requires)\b|^    ", lines[above]):
        above -= 1
    told = []
    while above >= 0 and (comment := re.match(r"/// ?(.*)", lines[above])):
        told.insert(0, comment[1])
        above -= 1
    if not told and (behind := re.search(r" // (.*)", lines[n])):
        told = [behind[1]]
    text = " ".join(told)
    text = re.split(r"(?<=[\w\)\"\]\}]\.) (?=[A-Z])|:  |;  ", text + " ")[0].strip().removesuffix(":").removesuffix(".")
    return re.sub(r"([|<>\[\]*_\\])", r"\\\1", text) if "`" not in text else text.replace("|", "\\|")


def signature(lines, n):
    """A function's declaration without its body, attributes and what says only where it may be called; nothing for what is none."""
    text = ""
    for line in lines[n:n + 12]:
        text += " " + line.strip()
        if depth_ends(text) is not None:
            break
    end = depth_ends(text)
    if end is None or re.match(r" *(class|struct|enum|concept|using|namespace)\b", text):
        return ""
    told = re.sub(r"\[\[\w+\]\] |\b(inline|constexpr|RESHARD_HOST_DEVICE) ", "", text[:end].strip())
    told = re.sub(r" = (default_patience|\{\}|[\w:.]+)(?=[,)])", "", told)
    return told if "(" in told and "=" not in told.split("(")[0] and len(told) <= 200 else ""


def depth_ends(text):
    """Where the parameters of a declaration end; None where they are not all there, or it has none."""
    depth = 0
    for i, c in enumerate(text):
        depth += (c == "(") - (c == ")")
        if c == ")" and depth == 0:
            return i + 1
        if c in "{;" and depth == 0:
            return None
    return None


def names_of(header):
    """{name: sentence, and a function's declaration}, in the header's order; of overloads, the first that has a sentence."""
    text = header.read_text()
    lines, found = text.split("\n"), {}
    for n, name in public_names(text):
        if not found.get(name):
            told, called = first_sentence(lines, n), signature(lines, n)
            found[name] = told and told + (f": `{called.replace('|', chr(92) + '|')}`" if called else "")
    return found


def listed(source):
    """The headers of include/meson.build."""
    return re.findall(r"^  '(reshard/\S+)',$", (source / "include" / "meson.build").read_text(), re.M)


def with_lines(text, source):
    """The page of headers, with a line for each that has none: behind the last of its room."""
    lines = text.split("\n")
    for header in listed(source):
        room, name = header.split("/")[1], header.removeprefix("reshard/").rsplit(".", 1)[0]
        begin = next((n for n, line in enumerate(lines) if line.startswith(f"## {room}:")), None)
        if begin is None or any(line.startswith(f"| `{header}` |") for line in lines):
            continue
        told = " ".join(re.findall(r"^// (.*)", re.sub(r"^// SPDX.*\n", "", (source / "include" / header).read_text()).split("\n#pragma")[0], re.M))
        test = f"[test](../../tests/{name}.cpp)" if (source / "tests" / f"{name}.cpp").exists() else ""
        end = next((n for n in range(begin + 1, len(lines)) if lines[n].startswith("## ")), len(lines))
        last = max((n for n in range(begin, end) if lines[n].startswith("|")), default=begin)
        lines.insert(last + 1, f"| `{header}` | {re.split(r'[.:;] ', told + ' ')[0]} | {test} |")
    return "\n".join(lines)


def page(source):
    out = ["<!-- SPDX-License-Identifier: Apache-2.0 -->", "# Every public name", "",
           "By header, with what the name's comment says first, and a function's parameters. `docs/names.py` writes this page from the headers; what a person types",
           "most is told in [What you type](api.md), what each header is for in [Headers](headers.md).", ""]
    for header in listed(source):
        names = names_of(source / "include" / header)
        if names:
            out += [f"## {header.removeprefix('reshard/')}", "", "| name | |", "|---|---|"]
            out += [f"| `{name}` | {sentence} |" for name, sentence in names.items()] + [""]
    return "\n".join(out)


if __name__ == "__main__":
    root = pathlib.Path(sys.argv[1])
    (root / "docs/reference/names.md").write_text(page(root))
    headers = root / "docs/reference/headers.md"
    headers.write_text(with_lines(headers.read_text(), root))
