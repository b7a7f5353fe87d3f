# SPDX-License-Identifier: MIT
# mutants.awk - reads mutants (tests/mutants/README.md), checks them, and makes one.
#
#   awk -v top=TREE -f mutants.awk MUTANT...             what is wrong with any of them, on stdout
#   awk -v top=TREE -v to=FILE -f mutants.awk MUTANT     and its file, changed, as FILE
#
# Texts are compared byte by byte: nothing in them is a pattern.

function load(path,    line, text, n) {
    if (path in loaded) return loaded[path]
    text = ""
    while ((n = (getline line < path)) > 0) text = text line "\n"
    close(path)
    there[path] = n == 0
    return loaded[path] = text
}

function add(text, line) { return text == "" ? line : text "\n" line }

# Into rule, file, test, old, new.
function parse(mutant,    line, part, n) {
    rule = file = test = old = new = part = ""
    while ((getline line < mutant) > 0) {
        if (line == "--- old" || line == "--- new") { part = line; continue }
        if (part == "--- old") old = add(old, line)
        else if (part == "--- new") new = add(new, line)
        else if (line ~ /^rule: /) rule = substr(line, 7)
        else if (line ~ /^file: /) file = substr(line, 7)
        else if (line ~ /^test: /) test = substr(line, 7)
    }
    close(mutant)
    return part == "--- new"
}

function wrong_test(    program, name, source) {
    program = test; sub(/ .*/, "", program)
    name = index(test, " ") ? substr(test, length(program) + 2) : ""
    source = load(top "/tests/" program ".c") load(top "/tests/" program ".sh")
    if (source == "") return "tests/" program ": no such test"
    if (name != "" && !index(source, name)) return "tests/" program " has no test " name
    return ""
}

function wrong(mutant,    text, at) {
    if (!parse(mutant) || old == "" || old == new) return "it changes nothing"
    text = file == "" ? "" : load(top "/" file)
    if (rule == "" || text == "") return "it needs a rule, and a file that exists"
    at = index(text, old)
    if (!at) return "its old text is not there any more"
    before = substr(text, 1, at - 1); behind = substr(text, at + length(old))
    if (index(behind, old)) return "its old text is there more than once"
    return wrong_test()
}

BEGIN {
    for (i = 1; i < ARGC; i++) {
        why = wrong(ARGV[i])
        if (why != "") { print (to ? "" : ARGV[i] ": ") why; bad = 1 }
    }
    if (!bad && to) printf "%s%s%s", before, new, behind > to
    exit bad
}
