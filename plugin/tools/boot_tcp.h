/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The rendezvous of ranks on several machines: rank 0 listens, the others dial it. */
#ifndef PVN_TOOLS_BOOT_TCP_H
#define PVN_TOOLS_BOOT_TCP_H

#include "tools/boot.h"
#include "tools/boot_key.h"

#ifdef __cplusplus
extern "C" {
#endif

struct pvn_boot_tcp {
    int rank;
    int nranks;
    const char *master; /* name or address of rank 0's machine */
    int port;
    /* The launcher's job; 0: unknown. Ranks of another job are refused without further effect. */
    uint64_t job;
    uint64_t token;      /* must be equal in all ranks of the job: its options */
    double meet_timeout; /* seconds for all ranks to appear */
    double timeout;      /* seconds for every later wait */
    const char *program; /* for messages; NULL: pvn-perf, with its options */
    const char *release; /* its version, for messages; must be equal in all ranks; NULL: none */
    const char *see;     /* the program's settings of the rendezvous, for messages */
    /* ranks prove it, and their connections are sealed; NULL: no key */
    const struct pvn_boot_key *key;
    int partial; /* rank 0 continues without missing ranks, whose fd is -1 */
};

/*
 * Fills b (free with pvn_boot_close). 0, or a negative errno with a sentence in why. If something
 * else connects to rank 0 (a scanner, a rank of another job), it is refused without delaying the
 * ranks. If a rank of this job must be refused, the rendezvous ends at once, with its host and the
 * reason in why. With a key, data from a connection counts only once it is sealed: a peer without
 * the key, or with another one, is refused with a line on stderr, and the rendezvous continues.
 */
int pvn_boot_tcp_meet(struct pvn_boot *b, const struct pvn_boot_tcp *t, char *why, size_t why_len);

#ifdef __cplusplus
}
#endif

#endif
