# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# Makes the table of peer_rdma.sh's comms that are set up at once, from lines "comms side s cpu_s sender_KiB
# receiver_KiB". It has a column for each of `sides`. Loaded after median.awk.
{
    if (!($1 in known)) {
        known[$1] = 1
        comms[++rows] = $1
    }
    for (i = 3; i <= 6; i++)
        values[$1, $2, i] = values[$1, $2, i] " " $i
}
function cell(n, side,    s) {
    s = median(values[n, side, 3])
    s = sprintf("%.3f (%.3f..%.3f)", s, lo, hi)
    return s sprintf(", %.3f, %.0f, %.0f", median(values[n, side, 4]), median(values[n, side, 5]), median(values[n, side, 6]))
}
END {
    n = split(sides, side, " ")
    printf "%6s", "comms"
    for (i = 1; i <= n; i++)
        printf "  %-42s", side[i]
    print ""
    for (r = 1; r <= rows; r++) {
        printf "%6d", comms[r]
        for (i = 1; i <= n; i++)
            printf "  %-42s", cell(comms[r], side[i])
        print ""
    }
}
