# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# Makes the table of peer_faults.sh from rows network,fault,side,round,verdict,ended,gap,said. Loaded after
# median.awk.
{
    row = $1 "," $2
    if (!(row in known)) {
        known[row] = 1
        order[++rows] = row
    }
    of = row "," $3
    runs[of]++
    right[of] += $5 == "right"
    hung[of] += $5 == "hung"
    gaps[of] = gaps[of] " " $7
    if ($5 == "error")
        ended[of] = ended[of] " " $6
}
function cell(of,    text) {
    if (!runs[of])
        return "-"
    text = right[of] " of " runs[of] " right"
    if (hung[of])
        text = text ", " hung[of] " hung"
    if (ended[of])
        text = text sprintf(", error after %.1f s", median(ended[of]))
    return text sprintf("; longest pause %.1f s", median(gaps[of]))
}
END {
    printf "%-8s %-18s %-58s %s\n", "over", "fault", "this plugin", "NCCL's own"
    for (i = 1; i <= rows; i++) {
        split(order[i], name, ",")
        printf "%-8s %-18s %-58s %s\n", name[1], name[2], cell(order[i] ",ours"), cell(order[i] ",nccl")
    }
}
