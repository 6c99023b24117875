# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# Makes the table of nccl.sh. Loaded after distance.awk and median.awk. Its file has a row for each time: plugin,
# channels, round, test, bytes, us, and the time from processor to processor before and after, in ns.
function cell(row, plugin,    m) {
    m = median(us[row, plugin])
    printf " %10.1f (%.0f..%.0f)", m, lo, hi
    return m
}
{ plugin[NR] = $1; row[NR] = sprintf("%-10s %2d %9d", $4, $2, $5); time[NR] = $6; before[NR] = $7; after[NR] = $8 }
END {
    usual = usual_distance(before, after)
    for (i = 1; i <= NR; i++) {
        if (!(row[i] in seen)) rows[++nrows] = row[i]
        seen[row[i]]
        if (alike(before[i], usual) && alike(after[i], usual)) us[row[i], plugin[i]] = us[row[i], plugin[i]] " " time[i]
        else left_out++
    }
    printf "%-10s %2s %9s %s\n", "test", "ch", "bytes", \
        "pvrdma us (min..max), NCCL's own us (min..max), faster by; with --bare the bare plugin us, faster by"
    for (i = 1; i <= nrows; i++) {
        printf "%s", rows[i]
        if (!((rows[i], "pvrdma") in us) || !((rows[i], "none") in us)) { print " -"; continue }
        ours = cell(rows[i], "pvrdma")
        sockets = cell(rows[i], "none")
        printf " %6.2f", sockets / ours
        if ((rows[i], "bare") in us) printf " %6.2f", sockets / cell(rows[i], "bare")
        print ""
    }
    printf "processor to processor: %d ns; left out because it changed or was another: %d of %d rows\n", usual, left_out, NR
}
