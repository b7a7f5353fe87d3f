# SPDX-License-Identifier: MIT
# pictures.sh - the pictures of the pages: as the script makes them, readable, and each one used.

test_the_pictures_are_those_that_the_script_makes() {
    expect_exit 0 python3 "$root/tools/pictures.py" made
    [ "$(find made -name '*.svg' | wc -l)" -ge 12 ] || fail "too few pictures"
    diff -r made "$root/docs/pictures" > out || { show; fail "run \`make pictures\`"; }
}

test_words_that_lie_on_one_another_are_an_error() {
    sed "s/'acquire', '加锁'/'acquire the lock and wait for a long time', '加锁'/" \
        "$root/tools/pictures.py" > pictures.py
    expect_exit 1 python3 pictures.py made
    expect_err 'lies on|does not fit'
}

# XML that a browser takes, with a ground of its own in light and dark, and only generic fonts.
test_each_picture_can_be_read() {
    python3 -c 'import sys, xml.dom.minidom
for f in sys.argv[1:]: xml.dom.minidom.parse(f)' "$root"/docs/pictures/*.svg
    for f in "$root"/docs/pictures/*.svg; do
        grep -q '<rect class="paper"' "$f" || fail "$f has no ground"
        grep -q 'prefers-color-scheme: dark' "$f" || fail "$f knows no dark"
        if grep -o 'font-family="[^"]*"' "$f" | grep -v '"sans-serif"'; then fail "a font in $f"; fi
        grep -q '<title>' "$f" || fail "$f has no title"
    done
}

# Also: the pages of each language have the pictures of their language.
test_each_picture_is_in_a_page_of_its_language() {
    for f in "$root"/docs/pictures/*.svg; do
        name=${f##*/}
        case $name in
            *.zh.svg) cat "$root"/*.zh.md "$root"/docs/*.zh.md ;;
            *) find "$root/README.md" "$root/docs" -name '*.md' ! -name '*.zh.md' -exec cat {} + ;;
        esac > pages
        grep -q "!\[[^]]*\](\(docs/\)\{0,1\}pictures/$name)" pages || fail "no page shows $name"
    done
    if grep -n 'pictures/[a-z]*\.svg' "$root"/*.zh.md "$root"/docs/*.zh.md; then
        fail "an English picture in a Chinese page"
    fi
}

# The plot and the figures of the pages are those of the result that is kept; with date and command.
test_the_plot_of_the_benchmark_is_that_of_its_result() {
    mkdir bench
    cp -r "$root/bench/peers" "$root/bench/results" bench/
    cp "$root/README.md" "$root/README.zh.md" .
    expect_exit 0 python3 bench/peers/run.py --readme
    for f in README.md README.zh.md bench/peers/README.md bench/results/peers-lead.svg; do
        cmp "$f" "$root/$f" || fail "$f: run bench/peers/run.py --readme"
    done
    for f in README.md README.zh.md; do
        grep -q '^20[0-9-]*.*`make bench-peers' "$f" || fail "$f does not say when and how"
    done
}
