# SPDX-License-Identifier: MIT
# pages.sh - what the documentation says is so: examples run, links lead somewhere, lists are whole.
# shellcheck disable=SC2016,SC2046,SC2086 # conditions are evaluated later; commands are split

pages() {
    find "$root/" -path "$root/build" -prune -o -path "$root/.git" -prune -o -name '*.md' -print
}

# block FILE LANGUAGE: the contents of the first fenced block of that language.
block() {
    awk -v lang="$2" '
        $1 == "```" lang && !inside { inside = 1; next }
        inside && $1 == "```" { exit }
        inside { print }' "$root/$1"
}

# The flags that pkg-config gives for an installed tree, for the one just built.
compile() { # compile FILE.c PROGRAM [FLAG...]
    source=$1 program=$2
    shift 2
    gcc -std=c99 -D_DEFAULT_SOURCE -pedantic -Wall -Wextra -Werror "$source" \
        -I"$root/include" -L"$root/build" -lholdfast -o "$program" "$@"
    LD_LIBRARY_PATH=$root/build
    export LD_LIBRARY_PATH
}

tool_in_path() {
    mkdir "$dir/bin"
    ln -s "$HOLDFAST" "$dir/bin/holdfast"
    PATH=$dir/bin:$PATH
    export PATH
}

embedded_cli() {
    "$(command -v redis-cli || command -v valkey-cli)" -s "$dir/hf/redis.sock" "$@"
}

# ---- examples ----

test_readme_c_example_is_short_and_works() {
    block README.md c > counter.c
    lines=$(wc -l < counter.c)
    [ "$lines" -le 25 ] || fail "the C example has $lines lines"
    sed 1,4d "$root/examples/counter.c" | cmp - counter.c ||
        fail "README.md and examples/counter.c differ"
    compile counter.c counter # the file is made if it is not there
    expect_exit 0 ./counter
    expect_out '^1, under number [0-9]{16}$'
    i=0
    while [ $i -lt 20 ]; do
        ./counter >> numbers &
        i=$((i + 1))
    done
    wait
    expect_eq "$(cat counter.txt)" 21
    # In the order of the counter the fencing numbers rise.
    sort -n numbers > by_count
    sort -t' ' -k4 -n numbers | cmp - by_count || fail "fencing numbers do not rise"
}

test_readme_c_example_tells_what_is_wrong() {
    block README.md c > counter.c
    compile counter.c counter
    HOLDFAST_URL=unix://$dir/nobody.sock
    expect_exit 1 ./counter
    expect_err 'nobody.sock'
}

test_readme_shell_example_works() {
    block README.md sh > example.sh
    grep -q 'holdfast run' example.sh
    tool_in_path
    expect_exit 0 sh -eu example.sh
    expect_no_err
    expect_out '^backing up$'
    expect_out '^deploying under number [0-9]{16}$'
    expect_out '^deploy: held'
    run holdfast status deploy
    expect_out '^deploy: free'
}

test_example_events_tells_of_loss_and_doubt() {
    compile "$root/examples/events.c" events
    expect_exit 0 ./events 1
    ./events 20 > deleted &
    pid=$!
    wait_until 'grep -q holding deleted'
    embedded_cli DEL lock:events > /dev/null
    status=0
    wait $pid || status=$?
    expect_eq "$status" 3
    grep -q '^stop: .*gone or has another' deleted

    ./events 20 > frozen &
    pid=$!
    wait_until 'grep -q holding frozen'
    server=$(cat hf/server.pid)
    kill -STOP "$server"
    wait_until 'grep -q ^stop: frozen'
    kill -CONT "$server"
    wait $pid || true
    grep -q '^in doubt' frozen
    grep -q '^stop: .*ended without an answer' frozen
}

test_example_guarded_write_refuses_the_late_one() {
    compile "$root/examples/guarded_write.c" guarded_write
    expect_exit 0 ./guarded_write
    expect_out '^slow: .*was refused'
    expect_eq "$(embedded_cli GET report:today)" "written by quick"
}

test_example_owner_id_acquires_and_releases() {
    compile "$root/examples/owner_id.c" owner_id
    expect_exit 0 ./owner_id acquire k 10s u1
    expect_out '^[0-9]{16}$'
    expect_eq "$(embedded_cli GET lock:k)" u1
    expect_exit 3 ./owner_id acquire k 10s u2
    expect_exit 3 ./owner_id release k u2
    expect_exit 0 ./owner_id release k u1
    expect_exit 3 ./owner_id release k u1
    expect_exit 0 ./owner_id acquire k 10s u2
    expect_exit 1 ./owner_id
}

test_example_epoll_serves_all_in_one_thread() {
    compile "$root/examples/epoll.c" epoll
    expect_exit 0 ./epoll 100
    expect_no_err
    expect_eq "$(grep -c '^worker [0-9]* holds it, number [0-9]*$' out)" 100
    # P6: in the order in which they asked. Who does not claim it within a second, as on a machine
    # that has no core for it, has lost its turn.
    sed -n 's/^worker \([0-9]*\) .*/\1/p' out > order
    expect_eq "$(sort -n order | tr '\n' ' ')" "$(seq -s ' ' 100) "
    [ "$(patience)" != 1 ] || expect_eq "$(tr '\n' ' ' < order)" "$(seq -s ' ' 100) "
    # One at a time: in the order in which they were told, the numbers rise.
    sed -n 's/.*number //p' out | sort -nc || fail "fencing numbers do not rise"
    # The loop goes on while they wait.
    "$HOLDFAST" run loop -- sh -c ': > held; sleep 1' &
    wait_until '[ -e held ]'
    expect_exit 0 ./epoll 3
    [ "$(sed '/holds it/,$d' out | grep -c tick)" -ge 5 ] || { show; fail "the loop stood still"; }
    wait_until '[ "$(embedded_cli EXISTS lock:loop "{lock:loop}:q")" = 0 ]'
    HOLDFAST_URL=unix://$dir/nobody.sock
    expect_exit 1 ./epoll
    expect_err 'nobody.sock'
}

test_example_libuv_holds_and_is_interrupted() {
    pkg-config --exists libuv || skip "no libuv here"
    # shellcheck disable=SC2046 # flags are words
    compile "$root/examples/libuv.c" libuv $(pkg-config --cflags --libs libuv)
    expect_exit 0 ./libuv job 10
    expect_out '^holding, number [0-9]{16}$'
    expect_out '^given back$'
    "$HOLDFAST" run job -- sh -c ': > held; sleep 1000' &
    holder=$!
    wait_until '[ -e held ]'
    env --default-signal=INT ./libuv job 10 > interrupted &
    pid=$!
    wait_until '[ "$(embedded_cli ZCARD "{lock:job}:q")" = 1 ]'
    kill -INT $pid
    status=0
    wait $pid || status=$?
    expect_eq "$status" 2
    grep -q '^interrupted$' interrupted
    expect_eq "$(embedded_cli ZCARD "{lock:job}:q")" 0
    ./libuv job 10 > out &
    pid=$!
    wait_until '[ "$(embedded_cli ZCARD "{lock:job}:q")" = 1 ]'
    kill $holder
    wait $pid
    grep -q '^given back$' out
}

test_example_counter_in_cpp_counts_like_the_one_in_c() {
    g++ -std=c++11 -Wall -Wextra -Wpedantic -Werror "$root/examples/counter.cpp" -I"$root/include" \
        -L"$root/build" -lholdfast -o counter
    LD_LIBRARY_PATH=$root/build
    export LD_LIBRARY_PATH
    echo 0 > counter.txt
    expect_exit 0 ./counter
    expect_out '^1, under number [0-9]{16}$'
    i=0
    while [ $i -lt 10 ]; do
        ./counter > /dev/null &
        i=$((i + 1))
    done
    wait
    expect_eq "$(cat counter.txt)" 11
    HOLDFAST_URL=unix://$dir/nobody.sock
    expect_exit 1 ./counter
    expect_err 'nobody.sock'
}

test_example_coroutine_serves_all_in_one_thread() {
    echo '#include <coroutine>' | g++ -std=c++20 -fsyntax-only -x c++ - 2> /dev/null ||
        left_out "this g++ has no coroutines"
    g++ -std=c++20 -Wall -Wextra -Wpedantic -Werror "$root/examples/coroutine.cpp" \
        -I"$root/include" -L"$root/build" -lholdfast -o coroutine
    LD_LIBRARY_PATH=$root/build
    export LD_LIBRARY_PATH
    expect_exit 0 ./coroutine 50
    expect_no_err
    expect_eq "$(sed -n 's/^job \([0-9]*\) holds it, number [0-9]*$/\1/p' out | tr '\n' ' ')" \
        "$(seq -s ' ' 50) "
    sed -n 's/.*number //p' out | sort -nc || fail "fencing numbers do not rise"
    HOLDFAST_URL=unix://$dir/nobody.sock
    expect_exit 1 ./coroutine
    expect_err 'nobody.sock'
}

test_every_example_has_a_test_and_is_in_the_index() {
    for f in "$root"/examples/*.*; do
        [ "${f##*/}" = README.md ] || grep -q "\[${f##*/}\](${f##*/})" "$root/examples/README.md" ||
            fail "not in the index: $f"
    done
    for f in "$root"/examples/*.c "$root"/examples/*.cpp; do
        cat "$root"/tests/cli/pages.sh "$root"/tests/cli/examples.sh |
            grep -q "examples/${f##*/}" || fail "not run by any test: $f"
    done
}

# ---- links and lists ----

# One program looks at all of them: a shell would need thousands.
test_links_lead_somewhere() {
    cat > links.py << 'END'
import os, re, sys
def anchors(path): # of its headings: lower case, blanks to dashes, no punctuation
    with open(path, encoding="utf-8") as f:
        heads = re.findall(r"^#+ (.*)$", f.read(), re.M)
    return {re.sub(r"[^a-z0-9_-]", "", h.lower().replace(" ", "-")) for h in heads}
count = 0
for page in sys.stdin.read().splitlines():
    with open(page, encoding="utf-8") as f:
        links = re.findall(r"\]\(([^)\s]*)\)", f.read())
    for link in links:
        if "://" in link:
            continue
        file, _, anchor = link.partition("#")
        at = os.path.join(os.path.dirname(page), file) if file else page
        if not os.path.exists(at):
            sys.exit("%s: %s leads nowhere" % (page, link))
        if anchor and anchor not in anchors(at):
            sys.exit("%s: %s: no such heading" % (page, link))
        count += 1
print(count)
END
    pages | python3 links.py > count || fail "a link"
    [ "$(cat count)" -gt 300 ] || fail "only $(cat count) links found"
    # It would find one that is wrong.
    for link in nowhere.md page.md#nothing '#nothing'; do
        printf '# Title\n[a](%s)\n' "$link" > page.md
        if echo page.md | python3 links.py 2> /dev/null; then fail "$link"; fi
    done
    printf '# Title\n[a](#title)\n' > page.md
    expect_eq "$(echo page.md | python3 links.py)" 1
}

test_files_named_in_messages_and_manuals_exist() {
    grep -rhoE 'docs/[a-z_]+\.md' "$root/src" "$root/cli" "$root/include" "$root/man" > named
    [ -s named ] || fail "found none"
    while read -r f; do
        [ -f "$root/$f" ] || fail "$f is named and does not exist"
    done < named
}

test_manual_names_every_function() {
    functions=$(grep -o 'hf_[a-z_]*(' "$root/include/holdfast.h" | tr -d '(' | sort -u)
    [ "$(echo "$functions" | wc -l)" -gt 40 ] || fail "found only: $functions"
    for f in $functions; do
        grep -qE "^\.Fn $f( |\$)" "$root/man/holdfast.3" ||
            fail "holdfast.3 lacks a prototype of $f"
    done
    groff -mandoc -Tutf8 -ww -z "$root/man/holdfast.3" 2> groff.out
    [ ! -s groff.out ] || { cat groff.out; fail "groff complains"; }
}

# Prototypes of the manual, as one text, are those of the header.
test_manual_prototypes_are_those_of_the_header() {
    gcc -E -P "$root/include/holdfast.h" | tr '\n' ' ' | sed 's/[;}]/\n/g' |
        sed 's/__attribute__(([^()]*\(([^()]*)\)*)) *//g; s/static inline//' > header
    sed -n 's/^\.Fn \(hf_[a-z_]*\) \(".*\)$/\1 \2/p' "$root/man/holdfast.3" > prototypes
    [ "$(wc -l < prototypes)" -ge 100 ] || fail "found only $(wc -l < prototypes)"
    while IFS=' ' read -r f args; do
        want="$f($(echo "$args" | sed 's/" "/, /g; s/"//g'))"
        tr -s ' ' < header | grep -qF "$want" || fail "not in the header: $want"
    done < prototypes
}

error_codes() {
    sed -n 's/^    X(\(E[A-Z]*\),.*/HF_\1/p' "$root/include/holdfast.h"
}

test_errors_page_and_manual_name_every_code() {
    [ "$(error_codes | wc -l)" -ge 24 ] || fail "too few codes found"
    for code in $(error_codes); do
        grep -qE "^(### |\| )$code( |\$)" "$root/docs/errors.md" || fail "errors.md lacks $code"
        grep -qw "$code" "$root/man/holdfast.3" || fail "holdfast.3 lacks $code"
    done
}

test_urls_page_names_every_option() {
    options=$(sed -n 's/^    { "\([a-z_]*\)", OPT_.*/\1/p' "$root/src/net/url.c")
    [ "$(echo "$options" | wc -l)" -ge 11 ] || fail "too few options found"
    for o in $options; do
        grep -qE "^\| .*\`$o\`" "$root/docs/urls.md" || fail "urls.md lacks $o"
    done
}

# Every URL of the examples is understood, though nobody may answer there.
test_urls_page_examples_are_understood() {
    sed -n '/^## Examples/,$p' "$root/docs/urls.md" | grep '^[a-z+]*:[^ ]*$' > urls
    [ "$(wc -l < urls)" -ge 6 ] || fail "too few examples found"
    # A folder of the test's own; hosts that nobody has to be asked for; no files of this machine.
    sed "s|:/var/lib/myjob/locks|:$dir/locks|; s|^embedded:\$|embedded:$dir/hf|
        s|10\.0\.0\.5|127.0.0.1:1|
        s|redis\.example\.org\(:[0-9]*\)*|127.0.0.1:1|; s|/run/redis/redis.sock|$dir/no.sock|
        s|passfile=[^&]*&*||; s|cacert=[^&]*&*||; s|cert=[^&]*&*||; s|key=[^&]*&*||" urls > local
    while read -r url; do
        run holdfast --url "$url" ls
        [ "$status" = 0 ] || [ "$status" = 69 ] || { show; fail "$url: exit status $status"; }
    done < local
}

test_protocol_page_names_every_script_and_key() {
    for f in "$root"/src/lua/*.lua; do
        name=$(basename "$f" .lua)
        grep -q "^| \`$name\` |" "$root/docs/protocol.md" || fail "protocol.md lacks $name"
    done
    holdfast acquire --owner me --ttl 10s mine > /dev/null
    holdfast acquire --ttl 10s other > /dev/null
    holdfast release other --owner "$(embedded_cli GET lock:other | cut -d: -f1)"
    # A leader, one who watches it, a sequence.
    "$HOLDFAST" elect mine2 -- sh -c ': > leads; sleep 1000' &
    wait_until '[ -e leads ]'
    "$HOLDFAST" leader mine2 --watch > /dev/null &
    wait_until '[ "$(embedded_cli ZCARD "{lock:mine2}:l")" = 1 ]'
    holdfast sequence mine2 > /dev/null
    # A holder that was killed, and one who waits.
    "$HOLDFAST" run --grace 5s waited -- sh -c ': > held; sleep 1000' &
    holder=$!
    wait_until '[ -e held ]'
    "$HOLDFAST" run waited -- true &
    wait_until '[ "$(embedded_cli ZCARD "{lock:waited}:q")" = 1 ]'
    embedded_cli PUBSUB CHANNELS | grep -q '^lock:holdfast:s:[0-9a-f]\{32\}$'
    grep -q '^`lock:holdfast:s:SESSION`' "$root/docs/protocol.md"
    # A latch and a barrier, each with one who waits; one who leaves.
    holdfast latch latched --set 2
    "$HOLDFAST" latch latched --wait &
    "$HOLDFAST" barrier met --count 2 &
    "$HOLDFAST" barrier met --count 2 --leave &
    "$HOLDFAST" barrier broken --count 2 &
    wait_until '[ "$(embedded_cli ZCARD "{lock:broken}:h")" = 1 ]'
    kill $!
    wait_until '[ "$(embedded_cli EXISTS "{lock:latched}:l" "{lock:met}:h" "{lock:met}:oh" \
        "{lock:broken}:b")" = 4 ]'
    kill_all_of $holder
    wait_until '[ "$(embedded_cli EXISTS "{lock:waited}:absent")" = 1 ]'
    for k in $(embedded_cli KEYS '*' | sed 's/session:.*/session:SESSION/
        s/mine2\|mine\|other\|waited\|latched\|met\|broken/NAME/'); do
        grep -qF "| \`$k\`" "$root/docs/protocol.md" || fail "protocol.md lacks $k"
    done
}

test_protocol_page_foreign_client_excludes_us_and_we_it() {
    holdfast server start > /dev/null
    sed -n '/^## Beside other clients/,/^## With/p' "$root/docs/protocol.md" |
        sed -n "s/^EVAL \"\(.*\)\" 1 .*/\1/p" > release.lua
    [ -s release.lua ] || fail "no script found"
    expect_eq "$(embedded_cli SET lock:a foreign NX PX 30000)" OK
    expect_exit 75 holdfast run -n a -- true
    expect_eq "$(embedded_cli EVAL "$(cat release.lua)" 1 lock:a foreign)" 1
    expect_exit 0 holdfast run -n a -- \
        sh -c "! redis-cli -s '$dir/hf/redis.sock' SET lock:a foreign NX PX 30000 | grep OK"
}

# ---- the users of acl.md ----

set_user() { # set_user LANGUAGE: the line of that block, with a password
    line=$(block docs/acl.md "$1" | sed 's/PASSWORD/secret/')
    [ -n "$line" ] || fail "no $1 block in acl.md"
    # shellcheck disable=SC2086 # words
    expect_eq "$(set -f; ask $line)" OK
    HOLDFAST_URL=$(echo "$SERVER_URL" |
        sed "s|unix://|unix://$(echo "$line" | awk '{ print $3 }')@|")
    HOLDFAST_PASSWORD=secret
    export HOLDFAST_URL HOLDFAST_PASSWORD
}

test_acl_user_can_do_everything() {
    start_server
    set_user acl
    for name in plain 'tagged{x}y'; do
        expect_exit 0 holdfast run "$name" -- true
        expect_exit 0 holdfast run --ttl 4s "$name" -- sleep 4.5
        expect_exit 0 holdfast acquire --owner me --ttl 20s "$name"
        expect_exit 0 holdfast extend "$name" --owner me --ttl 30s
        expect_exit 0 holdfast check "$name" --owner me
        expect_exit 75 holdfast run -n "$name" -- true
        expect_exit 0 holdfast status "$name"
        expect_exit 0 holdfast ls
        expect_exit 0 holdfast release "$name" --owner me
        expect_exit 0 holdfast once "$name" --ttl 60 -- echo cached
        expect_exit 0 holdfast once "$name" --ttl 60 -- echo never
        expect_out_is cached
        "$HOLDFAST" leader --watch "$name" > seen &
        watcher=$!
        wait_until 'grep -q "^-" seen'
        expect_exit 3 holdfast elect --value v "$name" -- \
            sh -c 'until grep -q "^[0-9]* v\$" seen; do sleep 0.02; done; exit 3'
        wait_until '[ "$(tail -n 1 seen)" = - ]'
        kill $watcher
        expect_exit 75 holdfast leader "$name"
        expect_exit 0 holdfast sequence --from-time "$name"
    done
    expect_exit 0 holdfast acquire --owner me --ttl 20s plain
    expect_exit 0 holdfast release --all --owner me
    expect_out 1
    # A queue, one who leaves it, a holder that is killed, and the next.
    "$HOLDFAST" run --grace 500ms w -- sh -c ': > held; sleep 1000' &
    holder=$!
    wait_until '[ -e held ]'
    "$HOLDFAST" run w -- true 2> first &
    first=$!
    wait_until '[ "$(ask ZCARD "{lock:w}:q")" = 1 ]'
    expect_exit 75 holdfast run -w 1500ms w -- true
    kill_all_of $holder
    wait $first
    [ ! -s first ] || { cat first; fail "a message"; }
    expect_exit 0 holdfast latch l --set 1
    "$HOLDFAST" latch l --wait &
    first=$!
    wait_until '[ "$(ask ZCARD "{lock:l}:l")" = 1 ]'
    expect_exit 0 holdfast latch l --down
    wait $first
    "$HOLDFAST" barrier b --count 2 > /dev/null &
    first=$!
    wait_until '[ "$(ask ZCARD "{lock:b}:h")" = 1 ]'
    expect_exit 0 holdfast barrier b --count 2
    wait $first
    "$HOLDFAST" run k -- sh -c 'echo $HOLDFAST_FENCE > number; sleep 1000' 2> broken &
    first=$!
    wait_until '[ -s number ]'
    expect_exit 0 holdfast ask k
    expect_out 'has been told'
    expect_exit 0 holdfast break k --fence "$(cat number)" --reason enough -w 20s
    expect_out 'let go'
    status=0
    wait $first || status=$?
    expect_eq $status 79
    grep -q 'broken by .*: enough$' broken
    # All commands of all scripts, whether a run above came across them or not. The repair is an
    # administrator's.
    allowed=$( (block docs/acl.md acl; block docs/acl.md acl-cluster) | tr ' ' '\n' |
        sed -n 's/^+//p' | sed 's/|.*//')
    used=$(grep -hoE --exclude=repair.lua "redis\.p?call\('[A-Z]+'" \
        "$root"/src/lua/*.lua "$root"/src/lua/part/*.lua | sed "s/.*'\(.*\)'/\1/" |
        tr '[:upper:]' '[:lower:]' | sort -u)
    [ "$(echo "$used" | wc -l)" -ge 25 ] || fail "found only: $used"
    for c in $used eval evalsha subscribe ping; do
        echo "$allowed" | grep -qx "$c" || fail "acl.md lacks +$c"
    done
    expect_eq "$(ask ACL LOG | head -n 1)" ""
}

test_acl_user_can_do_nothing_else() {
    start_server
    ask SET other 1 > /dev/null
    set_user acl
    for c in 'GET other' 'SET other 2' 'DEL other' 'CONFIG GET dir' 'KEYS *' 'FLUSHALL' 'ACL LIST' \
        'SHUTDOWN' 'SUBSCRIBE x' 'SCRIPT FLUSH'; do
        # shellcheck disable=SC2086 # words
        (set -f; ask --user holdfast --pass secret --no-auth-warning $c) > out 2>&1 || true
        expect_out 'NOPERM|no permissions'
    done
    expect_exit 77 holdfast --prefix other: run a -- true
    expect_err 'docs/acl.md'
}

test_acl_without_info_works_with_a_warning() {
    start_server
    set_user acl
    ask ACL SETUSER holdfast -info > /dev/null
    expect_exit 0 holdfast run a -- true
    expect_err 'may not run INFO'
}

test_acl_without_subscribe_works_by_polling_with_a_warning() {
    start_server
    set_user acl
    ask ACL SETUSER holdfast -subscribe > /dev/null
    "$HOLDFAST" run a -- sh -c ': > held; sleep 0.5' 2> warned &
    wait_until '[ -e held ]'
    grep -q 'no subscription' warned
    expect_eq "$(ask GET lock:a | cut -d: -f3)" 0
    expect_exit 0 holdfast run -w 20 a -- true
    expect_err 'no subscription.*docs/acl.md; waiting is by polling, and a crash costs the ttl'
}

test_acl_user_without_scripts() {
    start_server
    set_user acl-transaction
    for p in transaction timestamp; do
        expect_exit 0 holdfast run --protocol $p --ttl 4s a -- sleep 4.5
        expect_no_err
        expect_exit 0 holdfast acquire --protocol $p --ttl 20s a
        expect_exit 75 holdfast run -n --protocol $p a -- true
        expect_exit 0 holdfast ls --protocol $p
        expect_exit 0 holdfast sequence --protocol $p ids
        ask DEL lock:a > /dev/null
    done
    # Nobody has to choose.
    expect_exit 0 holdfast run a,b -- true
    expect_err 'runs no scripts for us'
    again="env HOLDFAST_PASSWORD=secret $HOLDFAST run -n -q" # run does not hand it down
    # shellcheck disable=SC2086 # words
    expect_exit 0 holdfast run --slots 2 s -- $again --slots 2 s -- true
    # shellcheck disable=SC2086
    expect_exit 0 holdfast run -s r -- $again -s r -- true
    expect_exit 0 holdfast acquire --owner me --ttl 20s a
    expect_exit 0 holdfast extend a --owner me --ttl 30s
    expect_exit 0 holdfast release --all --owner me
    expect_exit 0 holdfast once --ttl 20s page -- echo x
    expect_exit 0 holdfast once --ttl 20s page -- echo y
    expect_out_is x
    # All commands that the protocols use, whether a run above came across them or not.
    allowed=$(block docs/acl.md acl-transaction | tr ' ' '\n' | sed -n 's/^+//p')
    used=$(sed -n 's/.*tx_\(ask\|send\)(.*/&/p; s/.*argv\[0\] = S(.*/&/p' "$root"/src/exec/*.c |
        grep -oE '(x, |= )S\("[A-Z]+"\)' | sed 's/.*"\(.*\)".*/\1/' |
        tr '[:upper:]' '[:lower:]' | sort -u)
    used=$(printf '%s\n%s' "$used" 'client|setname') # of every connection
    [ "$(echo "$used" | wc -l)" -ge 25 ] || fail "found only: $used"
    for c in $used; do
        echo "$allowed" | grep -qx "$c" || fail "acl.md lacks +$c without scripts"
    done
    for c in $allowed; do
        echo "$used" | grep -qx "$c" || fail "acl.md gives +$c without scripts, which nobody needs"
    done
    # The first EVAL of each client that did not choose; nothing else was refused.
    expect_eq "$(ask ACL LOG | sed -n '/^object$/{n;p}' | sort -u)" eval
}

test_S5_a_user_that_only_looks_needs_no_right_to_write() {
    start_server
    set_user acl-look
    expect_exit 0 holdfast status a
    expect_out '^a: free'
    expect_exit 0 holdfast ls
    expect_exit 82 holdfast check a --owner me
    expect_eq "$(ask DBSIZE)" 0
    expect_eq "$(ask ACL LOG | grep -c '^object$' || true)" 0
    ask SET lock:holdfast:fence 1794769874605103 > /dev/null
    run holdfast run -n a -- true
    [ "$status" != 0 ] || fail "it could lock"
    expect_eq "$(ask GET lock:holdfast:fence)" 1794769874605103
}

test_S2_a_tenant_as_acl_md_has_it_reaches_no_channel() {
    start_server
    [ "$(ask ACL DRYRUN default PING)" = OK ] || left_out 'ACL DRYRUN is of 7.0'
    ask $(sed -n '/^```acl-tenant$/{n;p}' "$root/docs/acl.md" | sed 's/PASSWORD/pw/') > /dev/null
    for c in 'PUBLISH lock:holdfast:s:x y' 'SUBSCRIBE lock:holdfast:s:x' \
        'ZRANGE {lock:a}:q 0 -1'; do
        ask ACL DRYRUN tenant $c | grep -q 'no permission' || fail "a tenant may $c"
    done
    expect_eq "$(ask ACL DRYRUN tenant PUBLISH tenant:x y)" OK
    expect_eq "$(ask ACL DRYRUN tenant SET tenant:x y)" OK
}

test_acl_user_that_only_looks() {
    start_server
    holdfast --url "$SERVER_URL" acquire --owner me --ttl 30s a > /dev/null
    set_user acl-look
    expect_exit 0 holdfast status a
    expect_out '^a: held'
    expect_exit 0 holdfast ls
    expect_out '^a '
    expect_exit 0 holdfast check a --owner me
    run holdfast release a --owner me
    [ "$status" != 0 ] || fail "it could release"
    run holdfast run -n b -- true
    [ "$status" != 0 ] || fail "it could lock"
    expect_eq "$(ask GET lock:a)" me
}
