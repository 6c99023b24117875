# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# Reads a callgrind file with callers. For each function of messages.c in `phases`, in that order, prints the
# instructions that ran below it in objects whose path matches `object`, including code inlined into them.
BEGIN {
    n = split(phases, phase)
}

# A name appears as "(number) name" the first time, and as "(number)" after that.
function known(line, names,   id) {
    id = substr(line, 1, index(line, ")"))
    if (length(line) > length(id))
        names[id] = substr(line, length(id) + 2)
    return names[id]
}

/^ob=/ {
    ours = known(substr($0, 4), path) ~ object
}
/^cob=/ {
    known(substr($0, 5), path)
}
/^cfn=/ {
    known(substr($0, 5), fn)
}
/^fn=/ {
    callers = known(substr($0, 4), fn)
    below = ""
    for (i = 1; i <= n; i++)
        if (index(callers "\047", "\047" phase[i] "\047"))
            below = phase[i]
}
# The line after calls= has the callee's cost.
/^calls=/ {
    getline
    next
}
ours && /^[-+*0-9]/ {
    sum[below] += $NF
}
END {
    for (i = 1; i <= n; i++)
        printf "%d%s", sum[phase[i]], i < n ? " " : "\n"
}
