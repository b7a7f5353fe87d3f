# SPDX-License-Identifier: MIT
# holdfast.fish - completion for fish. All that it offers comes from `holdfast --complete`.

function __holdfast_complete
    set -l before (commandline -opc)
    set -l typed (commandline -ct)
    set -l plain (string unescape -- "$typed" 2> /dev/null)
    test -n "$plain"; or set plain "$typed"
    set -l program (string replace -r '^~/' "$HOME/" -- $before[1])
    set -l answer (printf '%s\0' $before "$plain" | $program --complete 2> /dev/null)
    if string match -qr '^:command [0-9]+( here)?$' -- "$answer[1]"
        set -l first (math 1 + (string split ' ' -- $answer[1])[2])
        set -l words
        test $first -gt (count $before); or set words (string escape -- $before[$first..-1])
        complete -C "$(string join ' ' -- $words "$typed")"
        return
    end
    switch "$answer[1]"
        case ':files'
            __fish_complete_path "$typed"
        case '*'
            test (count $answer) -eq 0; or printf '%s\n' $answer
    end
end

complete -c holdfast -f -k -a '(__holdfast_complete)'
