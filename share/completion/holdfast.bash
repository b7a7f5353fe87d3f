# SPDX-License-Identifier: MIT
# holdfast.bash - completion for bash. All that it offers comes from `holdfast --complete`.

# The words from number $1 on are a command of its own; $2 is "here" if its name is being typed: $3.
_holdfast_command()
{
    local word rest=$COMP_LINE index=0 words=0 offset=_comp_command_offset
    declare -F "$offset" > /dev/null || offset=_command_offset # before bash-completion 2.12
    if declare -F "$offset" > /dev/null; then
        # In COMP_WORDS a word may have been cut at colons.
        for word in "${COMP_WORDS[@]}"; do
            if [[ $index -eq 0 || $rest == [[:blank:]]* ]]; then
                [[ $words -lt $1 ]] || break
                words=$((words + 1))
            fi
            rest=${rest#"${rest%%[![:blank:]]*}"}
            rest=${rest#"$word"}
            index=$((index + 1))
        done
        "$offset" "$index"
    elif [[ ${2-} == here && $3 != */* ]]; then
        mapfile -t COMPREPLY < <(compgen -c -- "$3")
    else
        compopt -o bashdefault -o default
    fi
}

_holdfast()
{
    local line=${COMP_LINE:0:COMP_POINT} program=$1 tab=$'\t' answer number here word front
    COMPREPLY=()
    mapfile -t answer < <(printf '%s' "$line" | "${program/#\~\//$HOME/}" --complete line 2> /dev/null)
    if [[ ${answer[0]-} =~ ^:command\ ([0-9]+)(\ here)?$ ]]; then
        number=${BASH_REMATCH[1]} here=${BASH_REMATCH[2]# }
        _holdfast_command "$number" "$here" "$2"
        return
    elif [[ ${answer[0]-} == :files ]]; then
        compopt -o bashdefault -o default
        return
    fi
    # readline completes only what stands behind the last colon or equals sign.
    front=${line##*[[:blank:]]}
    if [[ $front == *"$2" ]]; then
        front=${front%"$2"}
    else
        front=
    fi
    for word in "${answer[@]}"; do
        word=${word%%"$tab"*}
        [[ $word != *[:/=,] ]] || compopt -o nospace
        word=${word#"$front"}
        # Behind a quotation mark readline takes it as it is: what would end that, or mean more than
        # itself there, is left out. The names are those of others.
        if [[ $line != *[\'\"]"$2" ]]; then
            printf -v word %q "$word"
        elif [[ $word == *[\'\"\$\`\\!]* ]]; then
            continue
        fi
        COMPREPLY+=("$word")
    done
}

complete -F _holdfast holdfast
