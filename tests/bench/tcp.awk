# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# Makes the tables of tests/bench/tcp.sh: medians (min..max) and ratios. Variables: own, the name of the plugin under
# comparison; order, all names. Loaded after distance.awk and median.awk. Files, in this order: distance.csv,
# alone.csv, iperf.csv, p2p.csv, ring.csv.
function size(x) { return x >= 1048576 ? x / 1048576 " MiB" : x >= 1024 ? x / 1024 " KiB" : x " B" }
function add(row, plugin, value, cpu) {
    if (!(row in known)) { known[row] = 1; rows[++nrows] = row }
    if (!near[$1]) return
    val[row, plugin] = val[row, plugin] " " value
    if (cpu > 0) use[row, plugin] = use[row, plugin] " " cpu
}
function over(n) { return n > 1 ? " over " n " comms" : "" }
function choose_near(    i) {
    usual = usual_distance(before, after)
    for (i = 1; i <= nmeasured; i++) {
        near[i] = alike(before[i], usual) && alike(after[i], usual)
        nfar += !near[i]
    }
}
BEGIN { nnames = split(order, names, " "); for (i = 1; i <= nnames; i++) seen[names[i]] = 1 }
FILENAME ~ /alone.csv$/ { if (!($1 in alone)) sizes[++nsizes] = $1; alone[$1] = alone[$1] " " $2; next }
FILENAME ~ /iperf.csv$/ { ip[$2] = ip[$2] " " $3; ipc[$2] = ipc[$2] " " $4; next }
FILENAME ~ /distance.csv$/ { before[$1] = $2; after[$1] = $3; nmeasured = $1; next }
!chosen { choose_near(); chosen = 1 }
# measurement, before_ns, after_ns, plugin, abi, repeat, test, item, ranks, channels, depth, group, bytes, iterations, time_us, ...
$7 == "latency" { add("latency " size($13) ", us", $4, $15); next }
$7 == "bandwidth" && $13 == 8 { add("8 B messages" over($10) ", M/s", $4, $20 / 1e6); next }
$7 == "bandwidth" { add("bandwidth " size($13) over($10) ", MB/s", $4, $19, $21); next }
{ add("ring R=" $9 ($7 == "no-sums" ? " without sums" : "") ", busbw MB/s", $4, $19, $21) }
END {
    for (s = 1; s <= 4 && s in ip; s *= 2) {
        m = median(ip[s]); if (m > best) best = m
        printf "iperf3 x%d %.0f MB/s (%.0f..%.0f), %.2f cpu s/GB\n", s, m, lo, hi, median(ipc[s])
    }
    for (i = 1; i <= nsizes; i++) {
        m = median(alone[sizes[i]])
        printf "send and recv alone, %s: %.2f us (%.2f..%.2f)\n", size(sizes[i]), m, lo, hi
    }
    printf "\n|"; for (i = 1; i <= nnames; i++) printf " | %s", names[i]
    printf " | %s / best other |", own
    if ("bare" in seen) printf " %s / bare | best other / bare |", own
    printf "\n|---"
    for (i = 0; i <= nnames + 2 * ("bare" in seen); i++) printf "|---"
    print "|"
    for (k = 1; k <= nrows; k++) {
        row = rows[k]; lower = row ~ /^latency/; other = mine = floor = 0
        printf "| %s", row
        for (i = 1; i <= nnames; i++) {
            if (val[row, names[i]] == "") { printf " | -"; continue }
            m = median(val[row, names[i]])
            form = m < 10 ? "%.2f (%.2f..%.2f)" : "%.1f (%.1f..%.1f)"
            printf " | " form, m, lo, hi
            if (row ~ /MB\/s/ && best) printf ", %.2f x iperf3", m / best
            if (use[row, names[i]] != "") printf ", %.2f s/GB", median(use[row, names[i]])
            if (names[i] == own) mine = m
            else if (names[i] == "bare") floor = m
            else if (!other || (lower ? m < other : m > other)) other = m
        }
        if (other > 0 && mine > 0) printf " | %.2f", mine / other; else printf " | -"
        if (floor > 0) printf (mine > 0 ? " | %.2f" : " | -"), mine / floor
        if (floor > 0) printf (other > 0 ? " | %.2f" : " | -"), other / floor
        print " |"
    }
    printf "\nprocessor to processor: %.0f ns; left out because it changed or was another: %d of %d measurements\n", usual, nfar, nmeasured
}
