# SPDX-License-Identifier: MIT
# share.sh - the files that users copy: units of systemd, a crontab, and that of the tutorial;
# Ansible and CI.
# shellcheck disable=SC2016 # programs of their own

tool_in() { # tool_in FOLDER
    mkdir -p "$1"
    ln -s "$HOLDFAST" "$1/holdfast"
}

# The program must be there for `verify`, so it is that of the test.
test_systemd_takes_the_units() {
    command -v systemd-analyze > /dev/null || left_out "no systemd-analyze here"
    tool_in bin
    for f in "$root"/share/systemd/*.service "$root"/share/systemd/*.timer; do
        sed "s|/usr/bin/holdfast|$dir/bin/holdfast|" "$f" > "${f##*/}"
    done
    SYSTEMD_LOG_LEVEL=warning
    export SYSTEMD_LOG_LEVEL
    systemd-analyze verify --man=no ./nightly.timer > /dev/null 2>&1 ||
        left_out "systemd-analyze does not work here"
    for f in nightly.service nightly.timer worker.service local.service; do
        expect_exit 0 systemd-analyze verify --man=no "./$f"
        # Of our files; what it thinks of this machine's is not our business.
        if grep -F "$f" err; then fail "$f: systemd has something to say"; fi
    done
    # It would find a mistake.
    sed -i 's/^Type=.*/&\nNonsense=1/' local.service
    expect_exit 0 systemd-analyze verify --man=no ./local.service
    expect_err 'local.service:[0-9]+: Unknown key'
}

# What the units say, without systemd: the commands are understood and do their work.
test_the_commands_of_the_units_work() {
    tool_in bin
    for f in nightly local; do
        line=$(sed -n 's/^ExecStart=//p' "$root/share/systemd/$f.service")
        line=$(echo "$line" | sed "s|/usr/bin/holdfast|$dir/bin/holdfast|")
        # shellcheck disable=SC2086 # words, as systemd splits them
        expect_exit 0 $line
    done
    sed -n 's/^ExecStart=//p' "$root/share/systemd/worker.service" > worker
    grep -q "^/usr/bin/holdfast elect worker -- /bin/sh -c '.*systemd-notify --ready" worker
}

# cron_line FILE: as cron runs it: by sh, with its PATH and little else. The user is not switched.
cron_line() {
    path=$(sed -n 's/^PATH=//p' "$1")
    line=$(sed -n 's/^0 3 \* \* \*  jobs  //p' "$1")
    [ -n "$line" ] || fail "no line of cron in $1"
    echo "$path" | grep -q '^/usr/local/bin:' || fail "$1: cron would not find what was installed"
    line=$(echo "$line" | sed 's|cd /srv/reports|cd reports|')
    expect_exit 0 env -i HOME="$dir" LOGNAME=jobs SHELL=/bin/sh HOLDFAST_URL="$HOLDFAST_URL" \
        PATH="$dir$path" /bin/sh -c "$line"
    expect_no_out
    expect_no_err
}

test_the_crontab_runs_its_job_once() {
    tool_in usr/local/bin
    cron_line "$root/share/cron/nightly"
    holdfast status nightly > held
    grep -q '^nightly: held' held || fail "--hold-min"
    cron_line "$root/share/cron/nightly" # another machine
}

test_the_crontab_of_the_tutorial_runs_its_job_once() {
    tool_in usr/local/bin
    for page in tutorial.md tutorial.zh.md; do
        rm -rf reports
        HOLDFAST_URL="embedded:$dir/hf?prefix=$page:" # the lock of the other page is still held
        mkdir reports
        printf '%s\n' '#!/bin/sh' 'echo "$HOLDFAST_FENCE" >> done' > reports/job.sh
        chmod +x reports/job.sh
        sed -n '/cron.d.daily/,/^## /p' "$root/docs/$page" > "tab"
        cron_line tab
        cron_line tab
        expect_eq "$(wc -l < reports/done | tr -d ' ')" 1
    done
}

commands() { # commands FOLDER...: each call of the tool in it, from its first option to the --
    for folder; do
        grep -rhE '(=|  |: |- )(/usr/bin/)?holdfast (run|elect) .* -- ' "$root/share/$folder" |
            sed -E 's/.*holdfast ((run|elect) .*) -- .*/\1/'
    done
}

# The options are those that the tool has, and do what the example says: the command runs.
test_each_command_line_runs() {
    commands systemd cron ansible ci > lines
    [ "$(wc -l < lines)" -ge 6 ] || fail "only $(wc -l < lines) commands were found"
    CI_PIPELINE_ID=7
    export CI_PIPELINE_ID
    n=0 url=$HOLDFAST_URL
    while read -r line; do
        n=$((n + 1))
        # Two of them have the same name, which stays taken for --hold-min.
        HOLDFAST_URL="$url?prefix=$n:"
        expect_exit 0 sh -c "\"\$HOLDFAST\" $line -- touch $dir/ran$n"
        [ -e "ran$n" ] || fail "it did nothing: $line"
    done < lines
    HOLDFAST_URL=$url
}
