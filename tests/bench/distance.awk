# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# Selects the measurements of a run that can be compared: those during which the time from processor to processor
# (core_distance.c) stayed at its most frequent value. A hypervisor moves between two or three such times, far apart,
# so their median may be none of them.
function alike(a, b) { return a <= 1.5 * b && b <= 1.5 * a }
# The time before and after measurement m, in ns, is before[m] and after[m]. Returns the usual one, 0 without a steady measurement.
function usual_distance(before, after,    i, j, count, most, usual) {
    for (i in before) {
        if (!alike(before[i], after[i])) continue
        count = 0
        for (j in before) count += alike(before[j], before[i]) && alike(after[j], before[i])
        if (count > most || (count == most && before[i] < usual)) { most = count; usual = before[i] }
    }
    return usual + 0
}
