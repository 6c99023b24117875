# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# bash completion for pvn-topo
_pvn_topo()
{
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]}
    local commands="dump matrix pairs why check lint merge diff gather params stat" word command=
    case $prev in
    --root | --topo-file | --host | --hosts | --hints | -o | --output)
        mapfile -t COMPREPLY < <(compgen -f -- "$cur")
        return
        ;;
    --nics)
        mapfile -t COMPREPLY < <(compgen -W "auto rdma tcp all" -- "$cur")
        return
        ;;
    --color)
        mapfile -t COMPREPLY < <(compgen -W "auto always never" -- "$cur")
        return
        ;;
    --rails | --timeout | --interval | --ssh | --remote | --parallel | --count)
        return
        ;;
    esac
    if [[ $cur == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "--root --topo-file --host --hosts --ssh --remote --parallel --hints --nics --rails --timeout --interval --no-env
            --json --xml --xml-full --dot --svg --nccl --all --output --color --no-names
            --keep-addresses --prom --per-comm --watch --count --clean --help --help=all --version" -- "$cur")
        return
    fi
    for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
        [[ " $commands " == *" $word "* ]] && command=$word && break
    done
    case $command in
    "")
        mapfile -t COMPREPLY < <(compgen -W "$commands" -- "$cur")
        ;;
    lint | diff | gather | stat | check)
        mapfile -t COMPREPLY < <(compgen -f -- "$cur")
        ;;
    why)
        # Names of this machine's devices; a pair of another machine is typed by hand.
        mapfile -t COMPREPLY < <(compgen -W "$(pvn-topo --json matrix 2>/dev/null |
            sed -n 's/^ *"\(name\|device\)": "\([^"]*\)",*$/\2/p')" -- "$cur")
        ;;
    esac
}
complete -o filenames -F _pvn_topo pvn-topo
