# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# Functions on lists of numbers separated by blanks. sorted() puts the list into v[1], v[2], ... in ascending order,
# and returns its length.
function sorted(list, v,    n, i, j, t) {
    n = split(list, v, " ")
    for (i = 2; i <= n; i++) { t = v[i]; for (j = i - 1; j > 0 && v[j] > t; j--) v[j + 1] = v[j]; v[j + 1] = t }
    return n
}
# median() leaves the minimum and the maximum in the variables lo and hi.
function median(list,    v, n) {
    n = sorted(list, v)
    lo = v[1]; hi = v[n]
    return n % 2 ? v[(n + 1) / 2] : (v[n / 2] + v[n / 2 + 1]) / 2
}
