# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# Prints the verdicts of tests/bench/gate.sh. Loaded after distance.awk and median.awk. Files: counts
# ("WHAT;BASE;THIS", less is better), then the CSV of tests/bench/tcp.sh.
function row(what, ratio, detail, verdict) {
    printf "%-42s %6.3f  %-32s %s\n", what, ratio, detail, verdict
    nworse += verdict == "worse"
}
function value(test) { return test == "latency" ? 1 / $15 : test == "bandwidth" && $13 == 8 ? $20 : $19 }

BEGIN { printf "%-42s %6s  %-32s %s\n", "what", "ratio", "(above 1: this build is better)", "verdict" }
FILENAME ~ /counts$/ {
    limit = $1 ~ /^doorbells/ ? 0.05 : 0.01
    ratio = $3 > 0 ? $2 / $3 : 1
    row($1, ratio, $2 " -> " $3, ratio < 1 - limit ? "worse" : ratio > 1 + limit ? "better" : "same")
    next
}
FNR == 1 { next }
{
    what = $7 " " $13 " B" ($10 > 1 ? ", " $10 " channels" : "")
    if (!(what in seen)) { seen[what] = 1; order[++n] = what }
    before[$1] = $2; after[$1] = $3
    if ($4 == "base") base[what, $1] = value($7); else this[what, $1] = value($7)
    measured[what] = measured[what] " " $1
}
END {
    usual = usual_distance(before, after)
    for (i = 1; i <= n; i++) {
        what = order[i]; list = ""; left = up = 0; split("", done)
        m = split(measured[what], id, " ")
        for (k = 1; k <= m; k++) {
            d = id[k]
            if (d in done || !((what, d) in base) || !((what, d) in this)) continue
            done[d] = 1
            if (!alike(before[d], usual) || !alike(after[d], usual)) { left++; continue }
            r = this[what, d] / base[what, d]
            list = list " " r; up += r > 1
        }
        count = sorted(list, v)
        if (count < 5) { row(what, count ? median(list) : 0, count " measurements, " left " left out", "too noisy"); continue }
        mid = median(list); spread = v[int(count * 3 / 4 + 0.5)] - v[int(count / 4 + 0.5)]
        detail = sprintf("%.3f..%.3f, %d of %d above 1", v[1], v[count], up, count)
        if (spread > 0.15 * mid) verdict = "too noisy"
        else if (mid < 0.97 && up <= 0.2 * count) verdict = "worse"
        else if (mid > 1.03 && up >= 0.8 * count) verdict = "better"
        else verdict = "same"
        row(what, mid, detail, verdict)
    }
    exit nworse > 0
}
