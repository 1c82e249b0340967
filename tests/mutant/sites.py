# SPDX-License-Identifier: Apache-2.0
"""Where a fault can be put into include/: mutants found on the compiler's syntax tree (libclang), each an edit of a few characters.

A mutant is `woven` where the fault can be switched on while the program runs; `plain` where it stands in a constant expression
(a constexpr variable, the condition of an `if constexpr`), so that it must be compiled by itself."""
import dataclasses
import hashlib
import pathlib
import re
import sys

try:
    from clang import cindex
except ImportError:  # Debian's package lies where another Python does not look
    sys.path.append("/usr/lib/python3/dist-packages")
    from clang import cindex
K = cindex.CursorKind
T = cindex.TypeKind

BINARY = {
    "<": ["<=", ">="], "<=": ["<", ">"], ">": [">=", "<="], ">=": [">", "<"], "==": ["!="], "!=": ["=="],
    "+": ["-"], "-": ["+"], "*": ["+"], "/": ["*"], "%": ["/"], "&&": ["||"], "||": ["&&"],
    "<<": [">>"], ">>": ["<<"], "&": ["|"], "|": ["&"], "^": ["|"],
}
ASSIGN = {"+=": ["=", "-="], "-=": ["=", "+="], "*=": ["="], "|=": ["=", "&="], "&=": ["=", "|="], "/=": ["="], "%=": ["="],
          "<<=": ["="], ">>=": ["="], "^=": ["="]}
MEMBERS = {"begin": "end", "end": "begin", "src": "dst", "dst": "src", "from": "to", "to": "from", "from_": "to_", "to_": "from_",
           "sends": "receives", "receives": "sends", "first": "last", "last": "first", "row": "column", "rows": "columns"}
INTEGERS = {T.CHAR_U, T.UCHAR, T.USHORT, T.UINT, T.ULONG, T.ULONGLONG, T.CHAR_S, T.SCHAR, T.SHORT, T.INT, T.LONG, T.LONGLONG}
# Calls that only make room or tell the compiler something: a fault in their numbers changes no answer.
NO_ANSWER = re.compile(r"\b(reserve|shrink_to_fit|prefetch|_mm_prefetch)\s*\(")
# Statements that add to what there is.
ADDS = re.compile(r"[+-]=|\+\+|--|\b(push_back|emplace_back|append|insert|add|sink|whole|partial)\s*\(")
# What gives the same whichever argument comes first.
SYMMETRIC = re.compile(r"(reshard::|std::)?(swap|__builtin_add_overflow|__builtin_mul_overflow|RESHARD_ADD_OVERFLOWS|RESHARD_MULTIPLY_OVERFLOWS|intersect|intersects|least|greatest|min|max|checked_multiply|checked_add|gcd|lcm)(<[^()]*>)?\s*\(")


@dataclasses.dataclass
class Mutant:
    header: str      # reshard/algebra/box.hpp
    line: int
    column: int
    operator: str    # what kind of fault
    begin: int       # the stretch of the header's bytes that is edited
    end: int
    form: str        # "expression": `text` takes the place of the stretch; "condition": `text` holds {} for it;
                     # "drop", "double": the stretch is a statement; "insert": `text` is put before it
    text: str
    plain: bool
    also: tuple = ()  # a second stretch that is edited with it, as (begin, end, text)
    id: str = ""
    change: str = ""

    @property
    def room(self):
        return self.header.split("/")[1]

    def applied(self, source):
        """The header's bytes with this fault alone."""
        old = source[self.begin:self.end].decode("latin-1")
        new = {"expression": lambda: self.text, "condition": lambda: self.text.replace("{}", old), "drop": lambda: ";",
               "double": lambda: "{ " + old + " " + old + " }", "insert": lambda: self.text.replace("RESHARD_ON", "true") + old}[self.form]()
        rest = source[self.end:]
        if self.also:
            begin, end, text = self.also
            rest = source[self.end:begin] + text.encode("latin-1") + source[end:]
        return source[:self.begin] + new.encode("latin-1") + rest


def blanked(source):
    """The text with comments, strings and characters as blanks of the same length, so that brackets can be counted."""
    def blank(match):
        return re.sub(r"[^\n]", " ", match[0])
    return re.sub(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|(?<![0-9a-zA-Z])\'(?:\\.|[^\'\\\n])*\'', blank, source, flags=re.S)


def closing(text, opening):
    """The position of the bracket that closes the one at `opening`."""
    depth = 0
    for i in range(opening, len(text)):
        if text[i] in "([{":
            depth += 1
        elif text[i] in ")]}":
            depth -= 1
            if depth == 0:
                return i
    return -1


class Finder:
    def __init__(self, include):
        self.include = pathlib.Path(include)
        # what is over MPI runs under mpirun, and what asks an etcd needs one: transport.toml and elastic.toml have their faults
        self.headers = sorted(str(p.relative_to(self.include)) for p in self.include.rglob("*.hpp") if p.parent.name != "reshard"
                              and not re.search(r"/(transport/mpi|elastic/etcd)[_./]", str(p)))
        self.source, self.text, self.found = {}, {}, {}

    def find(self):
        """All mutants, in the order of headers and lines; no two alike."""
        everything = "".join(f"#include <{h}>\n" for h in self.headers)
        unit = cindex.Index.create().parse("all.cpp", args=["-std=c++20", "-I", str(self.include)], unsaved_files=[("all.cpp", everything)])
        errors = [d for d in unit.diagnostics if d.severity >= cindex.Diagnostic.Error]
        if errors:
            raise RuntimeError(f"libclang does not read the headers: {errors[0]}")
        for h in self.headers:
            raw = (self.include / h).read_bytes()
            self.source[h], self.text[h], self.found[h] = raw, blanked(raw.decode("latin-1")), {}
        for child in unit.cursor.get_children():
            if self.header_of(child):
                self.walk(child, None, False, False)
        result = []
        for h in self.headers:
            result += self.named(h, sorted(self.found[h].values(), key=lambda m: (m.begin, m.end, m.operator, m.text)))
        return result

    def named(self, h, mutants):
        """Gives ids that survive the moving of lines: a hash of the line's text, where in it, and the change."""
        lines, seen = self.source[h].decode("latin-1").splitlines(), {}
        for m in mutants:
            line = lines[m.line - 1]
            indent = len(line) - len(line.lstrip())
            key = f"{h}|{line.strip()}|{m.column - indent}|{m.operator}|{m.text}"
            seen[key] = seen.get(key, 0) + 1
            digest = hashlib.sha256(f"{key}|{seen[key]}".encode()).hexdigest()[:8]
            m.id = f"{h.removeprefix('reshard/').removesuffix('.hpp')}-{digest}"
            old = " ".join(self.source[h][m.begin:m.end].decode("latin-1").split())
            old = old if len(old) <= 60 else old[:40] + " .. " + old[-16:]
            new = m.text.replace("{}", ".." if len(old) > 30 else old) if m.form == "condition" else m.text.replace("RESHARD_ON", "true")
            new = " ".join(new.split())  # of a fault over several lines
            old, new = (t.encode("latin-1").decode("utf-8", "replace") for t in (old, new))
            m.change = f"drop `{old}`" if m.form == "drop" else f"twice `{old}`" if m.form == "double" else \
                f"begin with `{new.strip()}`" if m.form == "insert" else f"`{old}` -> `{new}`"
        return mutants

    def header_of(self, cursor):
        if cursor.location.file is None:
            return None
        name = cursor.location.file.name
        prefix = str(self.include) + "/"
        return name[len(prefix):] if name.startswith(prefix) else None

    def add(self, h, operator, begin, end, form, text, plain, also=()):
        if self.source[h][begin:end].startswith(b"#"):
            return
        before = self.source[h][:begin]
        line, column = before.count(b"\n") + 1, begin - (before.rfind(b"\n") + 1)
        whole = self.source[h].splitlines()[line - 1].decode("latin-1")
        if NO_ANSWER.search(whole) or "static_assert" in whole:
            return
        self.found[h].setdefault((begin, end, form, text), Mutant(h, line, column, operator, begin, end, form, text, plain, also))

    def walk(self, cursor, function, plain, statement):
        """Adds the mutants of a cursor and what lies below it. `function`: what it is in the body of; None outside, where nothing is changed
        but constexpr values. `statement`: it stands where a statement does."""
        h = self.header_of(cursor)
        if h is None:
            return
        kind = cursor.kind
        if kind in (K.STATIC_ASSERT, K.TEMPLATE_NON_TYPE_PARAMETER, K.TEMPLATE_TYPE_PARAMETER, K.TEMPLATE_TEMPLATE_PARAMETER, K.TYPE_REF,
                    K.ENUM_DECL, K.CXX_UNARY_EXPR, K.TEMPLATE_REF, K.PARM_DECL, K.TYPE_ALIAS_DECL, K.TYPEDEF_DECL):
            return
        begin, end = cursor.extent.start.offset, cursor.extent.end.offset
        if cursor.extent.start.file is None or self.include / h != pathlib.Path(cursor.extent.start.file.name):
            return
        children = list(cursor.get_children())
        text = self.text[h]
        if kind in (K.FUNCTION_DECL, K.CXX_METHOD, K.FUNCTION_TEMPLATE, K.CONSTRUCTOR, K.DESTRUCTOR, K.CONVERSION_FUNCTION):
            if re.search(r"=\s*default?$", text[begin:end]):
                return  # what the compiler writes stands nowhere
            for child in children:
                if child.kind == K.COMPOUND_STMT:
                    self.early_return(h, cursor, child)
                    self.walk(child, cursor, False, False)
                elif kind == K.CONSTRUCTOR and child.kind.is_expression():
                    self.walk(child, cursor, False, False)
            return
        if kind == K.VAR_DECL:
            if "constexpr" in text[begin:cursor.location.offset]:
                plain = True
            elif function is None:
                return
        elif kind == K.FIELD_DECL:
            return
        elif kind.is_expression() or kind.is_statement():
            if function is None and not plain:
                return
            self.mutate(h, cursor, children, begin, end, plain, statement)
        # below
        constant_condition = kind == K.IF_STMT and re.match(r"if\s+constexpr\b", text[begin:end])
        condition = self.condition(h, cursor, children) if kind in (K.IF_STMT, K.WHILE_STMT, K.FOR_STMT) else None
        for i, child in enumerate(children):
            below = plain
            if constant_condition and condition is not None and child == condition:
                below = True
            if kind == K.CASE_STMT and i == 0:
                continue
            if kind == K.VAR_DECL and child.kind == K.INTEGER_LITERAL and (
                    child.extent.start.offset < cursor.location.offset or text[:child.extent.start.offset].rstrip().endswith("[")):
                continue  # part of a type: the argument of a template, the extent of an array
            stands = kind == K.COMPOUND_STMT or (kind in (K.IF_STMT, K.WHILE_STMT, K.FOR_STMT, K.CXX_FOR_RANGE_STMT)
                                                 and child.extent.start.offset > self.header_end(h, cursor)) \
                or (kind in (K.CASE_STMT, K.DEFAULT_STMT) and i == len(children) - 1)
            if kind == K.LAMBDA_EXPR and child.kind not in (K.COMPOUND_STMT,):
                continue
            self.walk(child, function, below, stands)

    def header_end(self, h, cursor):
        """Where the parentheses after if, for or while close."""
        text, begin = self.text[h], cursor.extent.start.offset
        opening = text.find("(", begin)
        return closing(text, opening)

    def condition(self, h, cursor, children):
        text, begin = self.text[h], cursor.extent.start.offset
        opening = text.find("(", begin)
        end = closing(text, opening)
        inside = [c for c in children if opening < c.extent.start.offset and c.extent.end.offset <= end and c.kind.is_expression()]
        if cursor.kind == K.FOR_STMT:
            depth, marks = 0, []
            for i in range(opening, end):
                depth += text[i] in "([{"
                depth -= text[i] in ")]}"
                if text[i] == ";" and depth == 1:
                    marks.append(i)
            if len(marks) != 2:
                return None
            inside = [c for c in inside if marks[0] < c.extent.start.offset < marks[1]]
        elif inside and text[inside[-1].extent.end.offset:end].strip():
            return None
        return inside[-1] if inside else None

    def early_return(self, h, function, body):
        begin = body.extent.start.offset + 1
        if function.kind in (K.CONSTRUCTOR, K.DESTRUCTOR):
            values = [""]
        else:
            returned = function.result_type.get_canonical()
            declared = self.text[h][function.extent.start.offset:function.location.offset]
            if re.search(r"\bauto\b|decltype", declared) or "noreturn" in declared:
                return
            if returned.kind == T.VOID:
                values = [""]
            elif returned.kind == T.BOOL:
                values = [" true", " false"]
            elif returned.kind in INTEGERS:
                values = [" 0"]
            elif returned.kind in (T.LVALUEREFERENCE, T.RVALUEREFERENCE, T.POINTER):
                return
            else:
                values = [" {}"]
        rest = self.text[h][begin:body.extent.end.offset - 1].strip()
        for value in values:
            if rest and rest != f"return{value};":
                self.add(h, "early return", begin, begin, "insert", f" if (RESHARD_ON) return{value};" if value.strip() != "{}" else
                         " if (RESHARD_ON) return {};", False)

    def mutate(self, h, cursor, children, begin, end, plain, statement):
        text, kind = self.text[h], cursor.kind
        if statement and not plain:
            self.statement(h, cursor, begin, end)
        if kind == K.BINARY_OPERATOR or (kind == K.CALL_EXPR and len(children) == 3):
            left, right = children[0], children[-1]
            a, b = left.extent.end.offset, right.extent.start.offset
            between = text[a:b].strip()
            if between in BINARY and begin == left.extent.start.offset and end == right.extent.end.offset:
                raw = self.source[h].decode("latin-1")
                for other in BINARY[between]:
                    self.add(h, "operator", begin, end, "expression", f"{raw[begin:a]} {other} {raw[b:end]}", plain)
        if kind == K.COMPOUND_ASSIGNMENT_OPERATOR and len(children) == 2:
            a, b = children[0].extent.end.offset, children[1].extent.start.offset
            raw = self.source[h].decode("latin-1")
            for other in ASSIGN.get(text[a:b].strip(), []):
                self.add(h, "assignment", begin, end, "expression", f"{raw[begin:a]} {other} {raw[b:end]}", plain)
        if kind == K.UNARY_OPERATOR and children:
            operator = text[begin:children[0].extent.start.offset].strip()
            inner = self.source[h][children[0].extent.start.offset:end].decode("latin-1")
            if operator == "!":
                self.add(h, "negation", begin, end, "expression", inner, plain)
            elif operator == "-" and children[0].kind != K.INTEGER_LITERAL:
                self.add(h, "sign", begin, end, "expression", inner, plain)
            elif operator == "~":
                self.add(h, "sign", begin, end, "expression", inner, plain)
        if kind == K.INTEGER_LITERAL:
            literal = self.source[h][begin:end].decode("latin-1")
            match = re.fullmatch(r"(0[xX][0-9a-fA-F']+|[0-9']+)([uUlLzZ]*)", literal)
            if match and len(match[1]) < 10:  # a longer one is a constant of a hash, as good as another
                value = int(match[1].replace("'", ""), 0) if match[1].lower().startswith("0x") else int(match[1].replace("'", ""))
                for other in [value + 1] + ([value - 1] if value > 0 else []):
                    self.add(h, "number", begin, end, "expression", f"{other}{match[2]}", plain)
        if kind == K.CXX_BOOL_LITERAL_EXPR:
            self.add(h, "truth", begin, end, "expression", "false" if text[begin:end] == "true" else "true", plain)
        if kind == K.CONDITIONAL_OPERATOR and len(children) == 3:
            for chosen in children[1:]:
                other = self.source[h][chosen.extent.start.offset:chosen.extent.end.offset].decode("latin-1")
                self.add(h, "choice", begin, end, "expression", other, plain)
        if kind in (K.IF_STMT, K.WHILE_STMT, K.FOR_STMT):
            condition = self.condition(h, cursor, children)
            if condition is not None:
                constant = plain or bool(re.match(r"if\s+constexpr\b", text[begin:end]))
                a, b = condition.extent.start.offset, condition.extent.end.offset
                if text[a:b].strip() not in ("true", "false"):
                    self.add(h, "condition", a, b, "condition", "false && ({})", constant)
                    if kind == K.IF_STMT:
                        self.add(h, "condition", a, b, "condition", "true || ({})", constant)
        if kind == K.RETURN_STMT and children:
            value = children[0]
            returned = value.type.get_canonical().kind
            a, b = value.extent.start.offset, value.extent.end.offset
            if returned == T.BOOL and text[a:b] not in ("true", "false"):
                self.add(h, "result", a, b, "condition", "!({})", plain)
            elif returned in INTEGERS and value.kind != K.INTEGER_LITERAL:
                self.add(h, "result", a, b, "condition", "({}) + 1", plain)
        if kind in (K.CALL_EXPR, K.INIT_LIST_EXPR, K.CXX_FUNCTIONAL_CAST_EXPR):
            self.swaps(h, cursor, children, begin, end, plain)
        if kind == K.MEMBER_REF_EXPR:
            name = cursor.spelling
            if name in MEMBERS and self.source[h][end - len(name):end].decode("latin-1") == name and text[end:end + 1] != "(":
                self.add(h, "member", begin, end, "expression", self.source[h][begin:end - len(name)].decode("latin-1") + MEMBERS[name], plain)

    def swaps(self, h, cursor, children, begin, end, plain):
        """Neighbouring arguments of one type change places."""
        text, raw = self.text[h], self.source[h].decode("latin-1")
        if end == begin or text[end - 1] not in ")}" or "[" in text[begin:end] and "](" in text[begin:end].replace(" ", ""):
            return
        if cursor.kind == K.CALL_EXPR:
            arguments = [a for a in cursor.get_arguments() if a is not None]
            arguments = arguments or children[1:]
        else:
            arguments = [c for c in children if c.kind.is_expression()]
        if cursor.kind == K.CALL_EXPR and (SYMMETRIC.match(text[begin:end]) or re.match(r"[\w:]*refuse\w*\s*\(|file\.refuse", text[begin:end])):
            return
        for a, b in zip(arguments, arguments[1:]):
            first, second = (a.extent.start.offset, a.extent.end.offset), (b.extent.start.offset, b.extent.end.offset)
            if not begin < first[0] < first[1] < second[0] < second[1] < end or text[first[1]:second[0]].strip() != ",":
                continue
            ta, tb = a.type.get_canonical(), b.type.get_canonical()
            if ta.kind != T.DEPENDENT and tb.kind != T.DEPENDENT and ta.spelling.replace("const ", "") != tb.spelling.replace("const ", "") \
                    and not (ta.kind in INTEGERS and tb.kind in INTEGERS):
                continue
            old_a, old_b = raw[first[0]:first[1]], raw[second[0]:second[1]]
            if old_a == old_b or "[&" in old_a + old_b or "[this" in old_a + old_b or "[=" in old_a + old_b:
                continue
            swapped = raw[begin:first[0]] + old_b + raw[first[1]:second[0]] + old_a + raw[second[1]:end]
            if cursor.kind == K.INIT_LIST_EXPR:  # no expression by itself: two edits that go together
                if ta.kind != T.DEPENDENT and not re.search(r"[{(]", old_a + old_b):
                    self.add(h, "swap", *first, "expression", old_b, plain, (*second, old_a))
                continue
            self.add(h, "swap", begin, end, "expression", swapped, plain)

    def statement(self, h, cursor, begin, end):
        text = self.text[h]
        past = end
        while past < len(text) and text[past].isspace():
            past += 1
        if past >= len(text) or text[past] != ";":
            return
        past += 1
        kind = cursor.kind
        head = text[begin:end]
        if kind in (K.BREAK_STMT, K.CONTINUE_STMT):
            self.add(h, "dropped", begin, past, "drop", "", False)
        elif kind == K.RETURN_STMT and head.strip() == "return":
            self.add(h, "dropped", begin, past, "drop", "", False)
        elif kind.is_expression() and not head.startswith("static_cast<void>"):
            if "throw" in head.split()[:1]:
                return
            self.add(h, "dropped", begin, past, "drop", "", False)
            # what is done twice must be able to matter: most calls and all assignments do the same again
            if ADDS.search(head):
                self.add(h, "doubled", begin, past, "double", "", False)
