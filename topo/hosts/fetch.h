/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Runs a command on many hosts in parallel and keeps the output of each. */
#ifndef PVN_TOPO_HOSTS_FETCH_H
#define PVN_TOPO_HOSTS_FETCH_H

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    PVN_TOPO_FETCH_BYTES = 64 << 20, /* more than a host's whole answer */
    PVN_TOPO_FETCH_ERR_LEN = 2048,
    PVN_TOPO_FETCH_PARALLEL = 512 /* at most */
};

enum pvn_topo_fetch_end {
    PVN_TOPO_FETCH_EXITED, /* status */
    PVN_TOPO_FETCH_KILLED, /* status: the signal */
    PVN_TOPO_FETCH_LATE,   /* it did not end in time */
    PVN_TOPO_FETCH_LONG,   /* it printed more than PVN_TOPO_FETCH_BYTES */
    PVN_TOPO_FETCH_FAILED  /* it was not started; status: errno */
};

struct pvn_topo_fetch {
    const char *host;
    enum pvn_topo_fetch_end end;
    int status;
    char *out; /* NUL-terminated; never NULL after a run, unless memory was short */
    size_t len;
    char err[PVN_TOPO_FETCH_ERR_LEN]; /* the end of its standard error */
};

/* Runs "ssh... HOST command" for each host, at most `parallel` at a time, each for at most limit_s
 * seconds. `ssh` is a command with arguments, split at blanks. OpenSSH's own program gets options
 * that keep it from asking for a password. 0 or -ENOMEM. */
int pvn_topo_fetch_run(const char *ssh, const char *command, struct pvn_topo_fetch *all, int n,
                       int parallel, int limit_s);
void pvn_topo_fetch_free(struct pvn_topo_fetch *all, int n);

#ifdef __cplusplus
}
#endif
#endif
