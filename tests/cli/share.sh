# SPDX-License-Identifier: MIT
# share.sh - the examples of share/: units for systemd, a line for cron, Ansible and CI.
# shellcheck disable=SC2016 # conditions are evaluated later

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

test_the_second_machine_leaves_quietly() {
    line=$(commands cron)
    expect_exit 0 sh -c "\"\$HOLDFAST\" $line -- echo first"
    expect_out_is first
    expect_exit 0 sh -c "\"\$HOLDFAST\" $line -- echo second"
    expect_out_is ''
    expect_no_err
}

test_systemd_takes_the_units() {
    command -v systemd-analyze > /dev/null || left_out "no systemd-analyze here"
    mkdir units
    cp "$root"/share/systemd/*.service "$root"/share/systemd/*.timer units/
    # They name an installed tool.
    sed -i "s,^ExecStart=/usr/bin/holdfast,ExecStart=$HOLDFAST," units/*.service
    cd units
    for u in *; do
        systemd-analyze verify --man=no "./$u" > ../verify 2>&1 || true
        ! grep -F "$u" ../verify || fail "systemd does not like $u"
    done
    printf '[Service]\nExecStart=/bin/true\nNoNewPrivilege=yes\n' > wrong.service
    systemd-analyze verify --man=no ./wrong.service > ../verify 2>&1 || true
    grep -q 'wrong.service.*NoNewPrivilege' ../verify || fail "it would not have seen a mistake"
}

test_the_yaml_can_be_read() {
    /usr/bin/python3 -c 'import yaml' 2> /dev/null || left_out "no python3-yaml here"
    for f in "$root/share/ansible/holdfast.yml" "$root/share/ci/deploy.yml"; do
        /usr/bin/python3 -c 'import sys, yaml; assert yaml.safe_load(open(sys.argv[1]))' "$f" ||
            fail "$f is no YAML"
    done
}
