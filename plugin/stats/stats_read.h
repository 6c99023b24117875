/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads a statistics file (stat_layout.h) of a process that runs, hangs or is dead. The file may
 * have any contents: sizes are checked, and texts are made printable ASCII and terminated.
 */
#ifndef PVN_STATS_STATS_READ_H
#define PVN_STATS_STATS_READ_H

#include <limits.h>
#include <stdbool.h>

#include "stats/stats_dir.h"

struct pvn_stats {
    char path[PATH_MAX];
    struct pvn_stat_head head;
    enum pvn_stats_life life;
    char state; /* of the process, as in /proc/PID/stat; '?' not known */
    /* When it was read, on the clock of the rows, but not before their last write. */
    uint64_t now_ns;
    uint64_t ahead_ns;        /* at least so far its host's calendar clock is ahead of this one's */
    bool saved;               /* taken from a document, maybe of another host */
    int nrows;                /* rows that were ever used, sorted by id */
    struct pvn_stat_row *row; /* seq 1: it was being written, so its numbers may not fit together */
};

/* 0: call pvn_stats_free() afterwards. A negative errno with *err: the file cannot be opened;
 * -EBADMSG: it is no statistics file, or an incomplete one; -EPROTONOSUPPORT: it has another
 * version (out->head.id and life are filled then). */
int pvn_stats_read(const char *path, struct pvn_stats *out, struct pvn_err *err);
void pvn_stats_free(struct pvn_stats *s);

#endif
