# SPDX-License-Identifier: MIT
# recipes.sh - every shell block of the pages that teach is run as it stands.

# blocks PAGE: each block of the language sh into block.1, block.2 ...
blocks() {
    rm -f block.*
    awk '/^```sh$/ { n++; inside = 1; next } /^```/ { inside = 0 } inside { print > ("block." n) }' \
        "$root/$1"
}

run_page() { # run_page PAGE LEAST: at least so many blocks
    mkdir -p bin
    ln -sf "$HOLDFAST" bin/holdfast
    PATH=$PWD/bin:$PATH
    export PATH
    blocks "$1"
    ran=0
    for b in block.*; do
        status=0
        timeout 60 sh -eu "./$b" > out 2> err || status=$?
        [ "$status" = 0 ] || { cat "$b"; show; fail "$1, $b: exit status $status"; }
        ran=$((ran + 1))
    done
    [ "$ran" -ge "$2" ] || fail "$1: only $ran blocks"
}

test_recipes() {
    run_page docs/recipes.md 7
}

# The two languages have the same commands, but for the words inside them.
test_recipes_in_chinese() {
    run_page docs/recipes.zh.md 7
    for page in recipes.md recipes.zh.md; do
        grep -o '`holdfast [a-z-]*' "$root/docs/$page" | sort -u > "commands.$page"
        grep -o 'hf_[a-z_]*()' "$root/docs/$page" | sort -u > "calls.$page"
    done
    cmp commands.recipes.md commands.recipes.zh.md || fail "commands differ"
    cmp calls.recipes.md calls.recipes.zh.md || fail "calls differ"
}
