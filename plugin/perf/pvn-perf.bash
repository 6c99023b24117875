# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# bash completion for pvn-perf
_pvn_perf()
{
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]}
    local modes="p2p serve ring scale mesh" word mode=
    local p2p="--depth --latency --bandwidth --bidirectional --duration --interval --json-lines --idle"
    local mesh="--depth --latency --bandwidth" group=--group
    local ring="--preset --collective --type --layers --tokens --micro-batches --per-peer --slot --steps --slices --no-sums"
    case $prev in
    --json | --json-lines | --csv | --plot | --plugin | --baseline)
        mapfile -t COMPREPLY < <(compgen -f -- "$cur")
        return
        ;;
    --preset)
        mapfile -t COMPREPLY < <(compgen -W "resnet50 bert-large gpt2 llama2-7b mixtral-8x7b" -- "$cur")
        return
        ;;
    --collective)
        mapfile -t COMPREPLY < <(compgen -W "allreduce allgather reducescatter broadcast sendrecv alltoall alltoallv pipeline" -- "$cur")
        return
        ;;
    --type)
        mapfile -t COMPREPLY < <(compgen -W "float32 bfloat16" -- "$cur")
        return
        ;;
    --memory)
        mapfile -t COMPREPLY < <(compgen -W "gpu pinned host" -- "$cur")
        return
        ;;
    --abi)
        mapfile -t COMPREPLY < <(compgen -W "4 5 6 7 8 9 10 11 12" -- "$cur")
        return
        ;;
    --netns)
        mapfile -t COMPREPLY < <(compgen -W "$(ip netns list 2>/dev/null | cut -d' ' -f1)" -- "$cur")
        return
        ;;
    --env | --dev | --gpu | --sizes | --channels | --comms | --depth | --group | --idle | --layers | --tokens | --micro-batches | --per-peer | --slot | --steps | --slices | \
        --traffic-class | --iters | --warmup | --time | --repeat | --timeout | --ranks | --master | --max-memory | --max-time | --duration | --interval | \
        --boot-timeout)
        return
        ;;
    esac
    for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
        [[ " $modes " == *" $word "* ]] && mode=$word && break
    done
    if [[ $cur == -* ]]; then
        [[ $mode != p2p ]] || ring=
        [[ $mode != mesh ]] || { p2p=$mesh ring= group=; }
        [[ $mode != ring && $mode != scale ]] || p2p=
        mapfile -t COMPREPLY < <(compgen -W "$p2p $ring $group --plugin --abi --env --dev --sizes --channels --comms --memory --gpu
            --traffic-class --check --iters --warmup --time --repeat --timeout --spin --ranks --netns
            --master --boot-timeout --json --csv --plot --baseline --tolerance --once --max-memory --max-time --quiet --verbose --params --help --help=all --version" -- "$cur")
    elif [[ -z $mode ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$modes" -- "$cur")
    fi
}
complete -o filenames -F _pvn_perf pvn-perf
