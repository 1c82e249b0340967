#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""refusals.py SOURCE [--list]: every sentence with which include/ refuses is asked for by a test.

A refusal is a call of refuse or of a function whose name begins with refuse_, and every other place that writes "reshard: ..": what is
thrown, told to other devices or asserted. Its words are its literals, in order; values stand between them. A test asks for it where its
literals, a value or none between two, have these words in this order, from the first to the last, or, in one statement, in parts; of
`a ? "x" : "y"` each is asked for. What a test case is called asks for nothing. What stands before the first ": " may be missing: who refuses. --list shows the test of each."""
import pathlib
import re
import sys

TOKEN = re.compile(r'//[^\n]*|/\*.*?\*/|R"(\w*)\((?P<raw>.*?)\)\1"|"(?P<text>(?:[^"\\\n]|\\.)*)"|(?<![\w])\'(?:[^\'\\\n]|\\.)+\'', re.S)
ESCAPES = {"n": "\n", "t": "\t", "0": "\0"}
VALUE, END = "\x01", "\x02"  # between two literals of a statement; where a statement ends
GAP = f"[^{END}]{{0,200}}?"  # what a test may have where a value stands


def spoken(text):
    return re.sub(r"\\(.)", lambda m: ESCAPES.get(m[1], m[1]), text)


def tokens(text):
    """(begin, end, words) of literals, characters and comments; words is None of the last two."""
    for m in TOKEN.finditer(text):
        raw, quoted = m["raw"], m["text"]
        yield m.start(), m.end(), raw if raw is not None else spoken(quoted) if quoted is not None else None


def hidden(text):
    """The text with comments, characters and literals replaced by as many blanks: what brackets and commas are counted in."""
    out, at = [], 0
    for begin, end, words in tokens(text):
        out += [text[at:begin], ("\0" if words is not None else " ") * (end - begin)]
        at = end
    return "".join(out) + text[at:]


def closing(text, opened):
    """Where the bracket that opens there closes."""
    depth = 0
    for at in range(opened, len(text)):
        depth += (text[at] in "([{") - (text[at] in ")]}")
        if depth == 0:
            return at
    return len(text)


def split(text, begin, end, marks):
    """The spans between marks that stand in no bracket, `::` being no mark."""
    depth, spans = 0, []
    for at in range(begin, end):
        depth += (text[at] in "([{") - (text[at] in ")]}")
        if depth == 0 and text[at] in marks and not (text[at] == ":" and ":" in (text[at - 1], text[at + 1])):
            spans.append((begin, at))
            begin = at + 1
    return [*spans, (begin, end)]


class Header:
    """A header, and of each of its functions refuse_..: the names of its parameters and the words of the one refuse in it."""

    def __init__(self, path):
        self.text = path.read_text()
        self.shown = hidden(self.text)
        self.literals = [t for t in tokens(self.text) if t[2] is not None]
        self.helpers = {}
        for m in re.finditer(r"\b(refuse_\w+)\(", self.shown):
            close = closing(self.shown, m.end() - 1)
            body = re.match(r"\)(?: const)? \{", self.shown[close:])
            if not body:
                continue
            inner = self.shown[close:closing(self.shown, close + body.end() - 1)]
            calls = [c for c in re.finditer(r"\brefuse\(", inner)]
            names = [re.sub(r".*\W", "", self.shown[a:b].strip()) for a, b in split(self.shown, m.end(), close, ",")]
            if len(calls) == 1 and "..." not in inner[:calls[0].start()]:
                self.helpers[m[1]] = (names, close + calls[0].end() - 1)

    def words(self, begin, end, given=None):
        """What an expression writes: texts, None for a value, lists for alternatives."""
        shown = self.shown[begin:end]
        if not shown.strip():
            return []
        if not shown.replace("\0", "").strip():
            return ["".join(w for a, b, w in self.literals if begin <= a and b <= end)]
        name = shown.strip().removesuffix("...")
        if given and name in given:
            return given[name]
        if "\0" not in shown:
            return [None]
        if len(question := split(self.shown, begin, end, "?")) > 1:
            yes, no = self.shown.find("?", question[0][1]) + 1, None
            depth = 0
            for a, b in split(self.shown, yes, end, "?:"):
                mark = self.shown[b] if b < end else ""
                if mark == ":" and depth == 0:
                    no = b + 1
                    break
                depth += (mark == "?") - (mark == ":")
            return [[self.words(yes, no - 1, given), self.words(no, end, given)]] if no else [None]
        for mark in ",+":
            if len(parts := split(self.shown, begin, end, mark)) > 1:
                return [w for a, b in parts for w in self.words(a, b, given)]
        if call := re.fullmatch(r"\s*(?:detail::)?(?:std::string|std::string_view|text_of|one_line)?\((.*)\)\s*", shown, re.S):
            return self.words(begin + call.start(1), begin + call.end(1), given)
        return [None]

    def refusals(self):
        """(line, words) of each."""
        seen = set()
        for m in re.finditer(r"(?<!void )\b(?:refuse(?:_\w+)?|throw [\w:]+)\(", self.shown):
            name, opened = m[0].removesuffix("("), m.end() - 1
            close = closing(self.shown, opened)
            if "\0" not in self.shown[opened:close] or re.match(r"\)(?: const)? \{", self.shown[close:]):
                continue
            seen.update(range(opened, close))
            words = self.words(opened + 1, close)
            if name in self.helpers:
                names, inner = self.helpers[name]
                spans = split(self.shown, opened + 1, close, ",")
                given = {n: self.words(*s) for n, s in zip(names, spans)}
                if len(spans) > len(names):
                    given[names[-1]] = [w for s in spans[len(names) - 1:] for w in self.words(*s)]
                words = self.words(inner + 1, closing(self.shown, inner), given)
            yield self.text.count("\n", 0, m.start()) + 1, words
        for a, b, words in self.literals:
            if not words.startswith("reshard: ") or len(words) < 10 or a in seen or self.text[:a].rsplit("\n", 1)[-1].startswith("#"):
                continue
            begin, depth = a, 0
            while begin and not (depth == 0 and self.shown[begin - 1] in "(;{}"):
                begin -= 1
                depth += (self.shown[begin] in ")]") - (self.shown[begin] in "([")
            ends = re.compile(r"[;]").search(self.shown, b)
            end = closing(self.shown, begin - 1) if self.shown[begin - 1] == "(" else ends.start()
            seen.update(range(begin, end))
            yield self.text.count("\n", 0, a) + 1, self.words(begin, end)


def without_who(words):
    """Behind the first ": ", which ends what a test may say once for many sentences: who refuses."""
    for i, w in enumerate(words):
        if isinstance(w, list):
            break
        if w and ": " in w:
            rest = [w.split(": ", 1)[1], *words[i + 1:]]
            return rest if sum(letters(r) for r in rest if isinstance(r, str)) > 7 or any(isinstance(r, list) for r in rest) else words
        if w and letters(w) > 12:
            break
    return words


def asked(words):
    """The patterns that are all to be found: for each alternative one, the others left open."""
    def pattern(items, chosen):
        out = ""
        for w in items:
            if isinstance(w, list):
                out += pattern(chosen[1], None) if chosen and chosen[0] is w else GAP
            else:
                out += GAP if w is None else re.escape(w)
        return out
    choices = [w for w in words if isinstance(w, list)]
    found = [pattern(words, None)] if not choices else [pattern(words, (c, alternative)) for c in choices for alternative in c if alternative]
    found = [re.sub(f"({re.escape(GAP)})+", lambda m: GAP, p).removeprefix(GAP).removeprefix("reshard:") for p in found]
    return [re.sub(r"^(\\ )+", "", p) for p in found]


def said(path):
    """The literals of a test, values and ends between them."""
    text = path.read_text()
    if path.suffix == ".py":
        text = re.sub(r"#[^\n]*", "", text)
        pieces = [(m.start(), m.end(), spoken(m[2] if m[2] is not None else m[3]))
                  for m in re.finditer(r'(\b[rfb]+)?(?:"((?:[^"\\\n]|\\.)*)"|\'((?:[^\'\\\n]|\\.)*)\')', text)]
    else:
        text = re.sub(r"\b(?:TEST_CASE|SUBCASE)(?:_TEMPLATE)?\(\s*(?:\"(?:[^\"\\\n]|\\.)*\"\s*)+", lambda m: " " * len(m[0]), text)
        pieces = [t for t in tokens(text) if t[2] is not None]
    out, past, depth = [], 0, 0
    for begin, end, words in pieces:
        between = text[past:begin] if path.suffix == ".py" else hidden(text[past:begin])
        depth += sum(between.count(b) for b in "([{") - sum(between.count(b) for b in ")]}")
        ends = ";" in between or (path.suffix == ".py" and "\n" in between and depth == 0)
        out.append("" if not between.strip() else END if ends else VALUE)
        out.append(words)
        past = end
    expected = [re.sub(r"\\(?=\W)", "", m) for m in re.findall(r"^// expect: (.*)", text, re.M)]
    return "".join(out) + "".join(END + re.sub(r'"\W*\[0\]\W*"|\[0\]', VALUE, e) for e in expected)


def letters(text):
    return sum(c.isalpha() for c in text)


def asks(text, pattern, in_parts=False):
    """Whether a test has the words in one statement, one after the other; or in parts, one of them long enough to be told from others."""
    if not in_parts:
        return re.search(pattern, text) is not None
    parts = [re.sub(r"^(\\ )+|(\\ )+$", "", p) for p in pattern.split(GAP) if letters(p) > 4]
    return any(letters(p) > 11 for p in parts) and any(all(re.search(p, statement) for p in parts) for statement in text.split(END))


def shown_as(pattern):
    """A pattern as one reads it, ` .. ` for a value."""
    return " ".join(re.sub(r"[^ -~]+", "", pattern.replace(GAP, " .. ").replace("\\", "")).split())


# Those that no test can bring about, and why. They are asked for by nobody: one that is, or is gone, does not belong here.
UNASKED = {  # by header and words
    ("cuda/detail/driver.hpp", "CUDA's driver has no"): "cuda_driver::get looks once in a process, and the emulation has every function",
    ("cuda/locate_memory.hpp", "lies in managed memory"): "the emulation of CUDA has no managed memory",
    ("transport/mpi/words.hpp", "bytes to say at once; MPI takes 2147483647"): "takes a text of 2 GiB, three times over",
    ("transport/mpi/wire.hpp", "and device .. , stage"): "an error of MPI that is none of length: what its machines fail with",
    ("transport/nccl/groups.hpp", "first contact with .. devices"): "takes more devices than can be processes of a test",
    ("transport/nccl/seats.hpp", "the devices have NCCL of versions"): "a machine has one NCCL, and the emulation is of one version",
}


def main():
    source = pathlib.Path(sys.argv[1]).resolve()
    tests = [p for p in sorted((source / "tests").rglob("*"))
             if p.suffix in (".cpp", ".hpp", ".cu", ".py") and "mutant" not in p.parts and p != pathlib.Path(__file__).resolve()]
    texts = {p: said(p) for p in tests}
    count, missing, stale = 0, 0, set(UNASKED)
    for path in sorted((source / "include").rglob("*.hpp")):
        near = sorted(texts, key=lambda p: (p.stem != path.stem, p.parent.name != path.parent.name))
        for line, words in Header(path).refusals():
            count += 1
            for p in asked(without_who(words)):
                at = next((t for t in near if asks(texts[t], p)), None) or next((t for t in near if asks(texts[t], p, True)), None)
                where, shown = f"{path.relative_to(source)}:{line}", shown_as(p)
                why = next((w for w in UNASKED if path.as_posix().endswith("reshard/" + w[0]) and w[1] in shown), None)
                stale.discard(None if at else why)
                if at is None and why is None:
                    missing += 1
                    print(f"{where}: no test asks for this: {shown}")
                elif "--list" in sys.argv:
                    print(f"{where}: {at.relative_to(source) if at else UNASKED[why]}")
    for header, words in sorted(stale):
        print(f"tests/refusals.py: '{words}' of {header} is asked for, or is no more")
    missing += len(stale)
    print(f"{count} refusals looked at")
    print(f"{int(not missing)} passed, {missing} failed")
    sys.exit(bool(missing))


if __name__ == "__main__":
    main()
