#!/usr/bin/env python3
"""Writes headers as Doxygen should read them. Our comments are plain `//`, and Doxygen takes `///` only.

    scripts/doxygen/headers.py FOLDER core/tensor.h ...    # writes FOLDER/core/tensor.h, ...

Every line of code keeps its number, so that Doxygen's messages name the right one. What changes:

- The comment on top becomes that of the file. What is in the file belongs to the group of its folder (pages.dox).
- What a heading `// ---- file.cpp: words ---` says is for all declarations below it that have no comment.
- Other comments of whole lines belong to the declaration after them, those behind code to the code. A comment with `//`,
  and not `///`, is for all declarations up to the next empty line or comment; both kinds are for overloads.
- Indented lines of a comment are an example or a table.
- Comments inside functions stay as they are.
"""

import os
import re
import sys

WHOLE_LINE = re.compile(r"^(\s*)(///?)(?!<)(?: (.*)|\s*)$")
SCOPE = re.compile(r"^(?:inline )?(?:enum class|enum|class|struct|union|namespace)\b")
SCOPE_NAME = re.compile(r"^(?:class|struct) (\w+)(?! *;)")
COMMANDS = r"(?:@(?:snippet|ref|code|endcode|copydoc)\b)"


def escaped(text):
    """Without characters that Doxygen would take as markup, outside of `code`."""
    pieces = re.split(r"(`[^`]*`)", text)
    for i in range(0, len(pieces), 2):
        piece = re.sub(rf"(?!{COMMANDS})[\\@#%$]", r"\\\g<0>", pieces[i])
        piece = piece.replace("<", "&lt;").replace(">", "&gt;").replace("--", r"\--")
        piece = piece.replace("et al. ", "et al.&nbsp;")  # the brief description does not end there
        piece = re.sub("^Read next:", "<br>Read next:", piece)
        pieces[i] = re.sub(r"(?<=\w)\*(?=\w)|(?<= )\*(?= )|\*(?=\()|^(\s*)\*", lambda m: (m[1] or "") + r"\*", piece)
    return "".join(pieces)


def code_end(line):
    """Where a comment behind code begins, else the length of the line."""
    quote, i = None, 0
    while i < len(line):
        if quote is not None:
            if line[i] == "\\":
                i += 1
            elif line[i] == quote:
                quote = None
        elif line[i] == '"' or line[i] == "'" and not re.match(r"[0-9a-f]'[0-9a-f]", line[max(i - 1, 0):i + 2]):
            quote = line[i]
        elif line.startswith("//", i):
            return i
        i += 1
    return i


def without_template(text):
    """A declaration without `template <..>` before it."""
    text = text.strip()
    while text.startswith("template"):
        depth, at = 0, text.find("<")
        for at in range(at, len(text)):
            depth += {"<": 1, ">": -1}.get(text[at], 0)
            if depth == 0:
                break
        text = text[at + 1:].strip()
        text = re.sub(r"^requires ?\(.*?\)+ (?=\w)", "", text)
    return text


def declared_name(text):
    """Of a function; '' for anything else."""
    found = re.search(r"(operator\s*\S+?|~?\w+)\s*\(", without_template(text))
    return found[1] if found else ""


def unary_functions():
    """On one line, the functions that a macro of autograd/ops.h defines from the list in core/kernels.h."""
    with open("core/kernels.h", encoding="utf-8") as file:
        names = re.search(r"#define TRIREME_EVERY_UNARY\(f\) *\\\n((?:.*\\\n)*.*)\n", file.read())[1]
    return " ".join(f"/** {name} of each element; formula: core/formulas.h */ Tensor {name}(const Tensor& x);"
                    for name in re.findall(r"f\((\w+)\)", names))


class Comment:
    """A comment of whole lines."""

    def __init__(self, indent, lines, for_all):
        self.indent, self.lines, self.for_all = indent, lines, for_all

    def shown(self):
        """Its lines for Doxygen, as many as there are."""
        out, i = [], 0
        while i < len(self.lines):
            begin = i
            while i < len(self.lines) and (self.lines[i].startswith("  ") or not self.lines[i] and i > begin):
                i += 1
            while i > begin and not self.lines[i - 1]:
                i -= 1
            if i > begin and (begin == 0 or not re.match(r"\s*(?:-|\d+\.) ", self.lines[begin - 1])):
                self.add_code(out, self.lines[begin:i])
            else:
                i = begin + 1
                out.append(escaped(self.lines[begin]))
        return [f"{self.indent}/// {line}".rstrip() for line in out]

    @staticmethod
    def add_code(out, lines):
        language = ".cpp" if any(re.search(r"[;{]", line) for line in lines) else ".unparsed"
        if not out:
            out.append("")
            lines = lines[1:] if len(lines) > 1 else lines
        out[-1] += f" @code{{{language}}}"
        out += lines[:-1] + [lines[-1] + " @endcode"]

    def brief(self):
        """Its first paragraph on one line."""
        text = " ".join(self.lines).strip() if "" not in self.lines else " ".join(self.lines[:self.lines.index("")])
        return "/** " + escaped(re.sub(r"\s+", " ", text)).replace("*/", "") + " */ "


class Filter:
    def __init__(self, path):
        self.path = path
        with open(path, encoding="utf-8") as file:
            self.lines = file.read().replace("the top of this file", path).split("\n")
        self.out, self.scopes, self.text = [], [], ""  # text: of the declaration so far
        self.hidden, self.heading, self.about, self.fresh = False, None, {}, False
        self.comment, self.name = None, ""  # of whole lines, since the last empty line; the first name that it is for
        self.behind = {}  # comments behind code since then, by the name that they are for

    def in_body(self):
        return "body" in self.scopes

    def read_comment(self, i):
        """The comment whose first line is line i, or None."""
        first = WHOLE_LINE.match(self.lines[i])
        if first is None or self.text.strip() or self.in_body():
            return None
        lines, mark = [], first[2]
        while i < len(self.lines):
            line = WHOLE_LINE.match(self.lines[i])
            if line is None or line[2] != mark:
                break
            lines.append(line[3] or "")
            i += 1
        return Comment(first[1], lines, mark == "//")

    def code(self, line):
        """Follows the scopes of a line of code; the text of the declaration that it ends or begins."""
        whole = self.text + " " + line
        for character in re.sub(r'"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)\'', '""', line):
            if character == "{":
                if self.in_body() or not SCOPE.match(without_template(self.text)) or "(" in self.text:
                    self.scopes.append("body")
                else:
                    self.scopes.append(without_template(self.text).split()[0])
                    self.text = ""
            elif character == "}":
                if self.scopes:
                    ended = self.scopes.pop()
                    if ended == "body" and not self.in_body() and not re.search(r"[={]\s*$", self.text):
                        self.text = "" if "=" not in re.sub(r"\(.*?\)|operator\s*\W+", "", without_template(self.text)) else self.text
            elif character == ";" and not self.in_body():
                self.text = ""
            elif not self.in_body():
                self.text += character
        if self.scopes and self.scopes[-1] == "enum" and self.text.strip().endswith(","):
            self.text = ""
        if re.fullmatch(r"\s*(public|protected|private)\s*:\s*", self.text):
            self.text = ""
        return whole

    def prefix(self, declaration, trailing):
        """What a declaration without a comment of its own has from those before it."""
        name, first = declared_name(declaration), self.fresh
        self.fresh = False
        if self.comment is not None and first:
            self.name = name
        elif trailing:
            self.behind[name] = Comment("", [trailing], False)
        elif self.comment is not None and (self.comment.for_all or name and name == self.name):
            return self.comment.brief()
        elif name and name in self.behind:
            return self.behind[name].brief()
        elif name and self.heading is not None:
            return self.heading.brief()
        elif (found := SCOPE_NAME.match(without_template(declaration))) and found[1] in self.about:
            return self.about[found[1]]
        return ""

    def head(self):
        """The comment on top, up to #pragma once, whose line says that it is the file's."""
        i = 0
        while not self.lines[i].startswith("#pragma once"):
            i += 1
        comment = Comment("", [(WHOLE_LINE.match(line)[3] or "") for line in self.lines[:i]], True)
        self.out += comment.shown() + ["/// @file"]
        if found := re.match(r"(\w+): (?=\w)", comment.lines[0] if comment.lines else ""):  # "Linear: y = x W^T + b, .."
            brief = Comment("", [comment.lines[0][found.end():], *comment.lines[1:]], True).brief()
            self.about = {found[1]: brief.replace(" */ ", f" More: {self.path}. */ ")}
        return i + 1

    def group(self):
        parts = self.path.split(os.sep)[:-1]
        return "_".join(parts[:2] if parts[0] == "parallel" else parts[:1])

    def run(self):
        i = self.head()
        while i < len(self.lines):
            line = self.lines[i]
            comment = self.read_comment(i)
            if comment is not None:
                count = len(comment.lines)
                if re.match(r"-{4}", comment.lines[0]):  # ---- a heading ----
                    self.out.append("")
                    self.lines[i] = ""
                    words = re.match(r"-+ [\w.]+: (.*?) -*$", comment.lines[0])
                    self.heading = Comment("", [words[1]], True) if words else None
                    self.comment = None
                    i += 1
                    continue
                follows = self.lines[i + count] if i + count < len(self.lines) else ""
                if follows.strip() and not re.match(r"\s*(\}|#(?!define))", follows):
                    self.out += comment.shown()
                    self.comment, self.name, self.fresh = comment, "", True
                else:
                    self.out += [""] * count
                    self.comment = None
                i += count
                continue
            self.out.append(self.line(line))
            i += 1
        return "\n".join(self.out).rstrip("\n") + (" /** @endcond */" if self.hidden else "") + "\n"

    def line(self, line):
        if not line.strip():
            if not self.in_body():
                self.comment, self.behind = None, {}
            return ""
        if line.startswith("#"):
            return line
        if line == "TRIREME_EVERY_UNARY(TRIREME_UNARY)":
            return unary_functions()
        if self.in_body():
            self.code(line[:code_end(line)])
            return line
        begins = not self.text.strip()
        end = code_end(line)
        code, trailing = line[:end].rstrip(), re.sub(r"^///?<? ?", "", line[end:])
        depth = len(self.scopes)
        whole = self.code(code)
        if re.match(r"NOLINT|namespace ", trailing):
            trailing = ""
        if re.match(r"namespace trireme[\w:]* \{", code) and depth == 0:
            self.comment = None
            return code + f" /** @layer{{{self.group()}}} */"
        if code == "}" and not self.scopes:
            rest = self.lines[len(self.out) + 1:]
            rest = any(rest) and not any(line.startswith("namespace trireme") for line in rest)
            self.hidden = rest  # specialisations of templates of others
            return "/** @} */ }" + (" /** @cond */" if rest else "")
        if begins and re.match(r"\s*\}", code):
            return code
        prefix = self.prefix(whole, trailing) if begins else ""
        if trailing and (code.endswith("{") or begins and SCOPE.match(without_template(code))):
            prefix, trailing = f"/** {escaped(trailing)} */ ", ""
        if trailing:
            return f"{prefix}{code}  ///< {escaped(trailing)}"
        return prefix + code


def main(folder, *headers):
    for header in headers:
        path = os.path.join(folder, header)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(Filter(header).run())


if __name__ == "__main__":
    main(*sys.argv[1:])
