# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# Makes the table of seal_guest.sh from rows "SIDE WHAT BYTES VALUE" of tests/vm/jobs/seal. Loaded after median.awk.
# sides: "NAME[:...] ...", in the order of the columns.
{
    key = $2 " " $3
    if (!(key in values_seen)) {
        values_seen[key] = 1
        order[++keys] = key
    }
    values[$1, key] = values[$1, key] " " $4
}

function text(what, value) {
    return what == "latency" ? sprintf("%.0f", value * 1000) : sprintf(what == "bandwidth" || what == "wire" ? "%.3g" : "%.1f", value)
}

function cell(side, what, key,    value, plain) {
    if (!((side, key) in values))
        return "-"
    value = median(values[side, key])
    plain = median(values["plain", key])
    return text(what, value) " (" sprintf("%.2f", plain ? value / plain : 0) ")"
}

END {
    said["latency"] = "instructions of a message"
    said["bandwidth"] = "instructions of a byte"
    said["calls"] = "socket calls of a message"
    said["packets"] = "packets of a message"
    said["wire"] = "bytes sent for a byte"
    n = split(sides, name, " ")
    printf "%-26s %8s", "", "bytes"
    for (i = 1; i <= n; i++) {
        sub(/:.*/, "", name[i])
        printf "  %18s", name[i]
    }
    print ""
    for (k = 1; k <= keys; k++) {
        split(order[k], part, " ")
        printf "%-26s %8d", said[part[1]], part[2]
        for (i = 1; i <= n; i++)
            printf "  %18s", cell(name[i], part[1], order[k])
        print ""
    }
}
