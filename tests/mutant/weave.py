# SPDX-License-Identifier: Apache-2.0
"""Many mutants in one copy of include/: each is off until the environment's RESHARD_MUTANT names its number, so that a test is compiled
once and run once per mutant. Constant expressions keep the text as it was written."""
import pathlib
import re

from sites import blanked, closing

SWITCH = r"""// Made by weave.py: faults that can be switched on while a program runs.
#include <cstdio>
#include <cstdlib>
#include <new>
#include <sys/mman.h>
namespace reshard_mutant {
inline const int active = [] {
  const char* number = std::getenv("RESHARD_MUTANT");
  return number != nullptr ? std::atoi(number) : 0;
}();
// Shared with the processes that a test forks: what they reach counts.
inline unsigned char* const reached = [] {
  void* at = mmap(nullptr, COUNT, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return at == MAP_FAILED ? new unsigned char[COUNT]() : static_cast<unsigned char*>(at);
}();
inline bool live(int number) {
  reached[number] = 1;
  return number == active;
}
constexpr bool on(int number) { return __builtin_is_constant_evaluated() ? false : live(number); }
inline const struct report {
  ~report() {
    const char* path = std::getenv("RESHARD_MUTANT_REACHED");
    std::FILE* file = path != nullptr ? std::fopen(path, "a") : nullptr;
    if (file == nullptr) return;
    for (int i = 0; i < COUNT; ++i)
      if (reached[i] != 0) std::fprintf(file, "%d\n", i);
    std::fclose(file);
  }
} at_exit;
}  // namespace reshard_mutant
"""
ON = "reshard_mutant::on({})"


def edits_of(mutants):
    """(begin, end, form, text, number) of every stretch, outer ones first."""
    edits = []
    for number, m in mutants:
        # Beside `!x` an `x` that is no bool would make both of its type.
        text = f"static_cast<bool>({m.text})" if m.operator == "negation" else m.text
        edits.append((m.begin, m.end, m.form, text, number))
        if m.also:
            edits.append((m.also[0], m.also[1], "expression", m.also[2], number))
    return sorted(edits, key=lambda e: (e[0], e[0] != e[1], -e[1]))


def emit(source, begin, end, edits):
    out, at = [], begin
    while edits:
        first = edits[0]
        if first[0] == first[1]:
            out += [source[at:first[0]], first[3].replace("RESHARD_ON", ON.format(first[4]))]
            at, edits = first[0], edits[1:]
            continue
        group = [e for e in edits if e[:2] == first[:2]]
        inside = [e for e in edits if e not in group and e[0] >= first[0] and e[1] <= first[1]]
        edits = [e for e in edits if e not in group and e not in inside]
        out += [source[at:first[0]], wrapped(group, emit(source, first[0], first[1], inside), source[first[0]:first[1]])]
        at = first[1]
    return "".join(out) + source[at:end]


def wrapped(group, inner, old):
    """One stretch with the switches of all mutants that edit it."""
    drops = [e for e in group if e[2] == "drop"]
    doubles = [e for e in group if e[2] == "double"]
    if drops or doubles:
        twice = "".join(f"if ({ON.format(e[4])}) {{ {old} }} " for e in doubles)
        return "{ " + twice + "".join(f"if (!{ON.format(e[4])}) " for e in drops) + inner + " }" if not is_jump(old) else \
            "".join(f"if (!{ON.format(e[4])}) " for e in drops) + inner
    for e in group:
        if e[2] != "condition":
            continue
        on = ON.format(e[4])
        inner = {"false && ({})": f"(!{on} && ({inner}))", "true || ({})": f"({on} || ({inner}))",
                 "!({})": f"({on} != static_cast<bool>({inner}))", "({}) + 1": f"(({inner}) + ({on} ? 1 : 0))"}[e[3]]
    for e in group:
        if e[2] == "expression":
            inner = f"({ON.format(e[4])} ? ({e[3]}) : ({inner}))"
    return inner


def is_jump(statement):
    return re.match(r"(break|continue|return)\b", statement) is not None


def weave(finder, mutants, folder):
    """Writes include/ with all these (number, mutant) into a folder. Returns the switch's text for -include."""
    folder = pathlib.Path(folder)
    for path in sorted(p for p in finder.include.rglob("*") if p.is_file()):  # what no fault is put into, kernels too
        target = folder / path.relative_to(finder.include)
        if str(path.relative_to(finder.include)) not in finder.headers and not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(path.read_bytes())
    for header in finder.headers:
        source = finder.source[header].decode("latin-1")
        mine = [(n, m) for n, m in mutants if m.header == header]
        target = folder / header
        target.parent.mkdir(parents=True, exist_ok=True)
        woven = emit(source, 0, len(source), edits_of(mine)).encode("latin-1")
        if not target.exists() or target.read_bytes() != woven:
            target.write_bytes(woven)
    switch = folder / "reshard_mutant.hpp"
    count = max((n for n, _ in mutants), default=0) + 1
    text = SWITCH.replace("COUNT", str(count))
    if not switch.exists():
        switch.write_text(text)
    return switch


def blamed(output, folder):
    """The numbers of the mutants that a compiler's errors point at."""
    folder, guilty, texts = pathlib.Path(folder), set(), {}
    block = []

    def close():
        for file, line, column in block:
            numbers = at(file, line, column)
            if numbers:
                guilty.update(numbers)
                return

    def at(file, line, column):
        if file not in texts:
            raw = pathlib.Path(file).read_bytes().decode("latin-1")
            texts[file] = (raw, blanked(raw), [0] + [i + 1 for i, c in enumerate(raw) if c == "\n"])
        raw, text, lines = texts[file]
        position = lines[line - 1] + column - 1
        line_end = lines[line] if line < len(lines) else len(raw)
        variants, wrappers, on_line = [], [], []
        for match in re.finditer(r"reshard_mutant::on\((\d+)\)", text[max(0, lines[line - 1] - 4000):line_end + 4000]):
            start = match.start() + max(0, lines[line - 1] - 4000)
            number = int(match[1])
            if lines[line - 1] <= start < line_end:
                on_line.append(number)
            after = start + len(match[0])
            choice = re.match(r" \? \(", text[after:after + 4])
            variant_end = closing(text, after + 3) if choice else after
            if start <= position <= variant_end:
                variants.append((variant_end - start, number))
            opening = start - 1 if text[start - 1] in "(!" else -1
            if opening >= 0 and text[opening] == "!":
                opening -= 1
            if opening >= 0 and opening <= position <= closing(text, opening):
                wrappers.append((closing(text, opening) - opening, number))
        if variants:
            return [min(variants)[1]]
        if wrappers:
            least = min(wrappers)[0]
            return [n for size, n in wrappers if size == least]
        return on_line

    for line in output.splitlines():
        match = re.match(r"([^\s:][^:]*):(\d+):(\d+): (.*)", line)
        if not match:
            continue
        inside = str(folder) in match[1] and match[1].endswith(".hpp") and not match[1].endswith("reshard_mutant.hpp")
        if re.match(r"(fatal )?error:", match[4]):
            close()
            block = []
        elif "required from" not in match[4] and "note:" not in match[4] and "in " not in match[4]:
            continue
        if inside:
            block.append((match[1], int(match[2]), int(match[3])))
    close()
    return guilty
