/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Ranks on several machines meet: rank 0 listens, the others dial it. */
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
    uint64_t
        job; /* of the launcher, 0: it says none; ranks of another one are refused and nothing else */
    uint64_t token;      /* must agree in all ranks of the job: its options */
    double meet_timeout; /* seconds for all ranks to appear */
    double timeout;      /* seconds for every later wait */
    const char *program; /* for messages; NULL: pvn-perf, with its options */
    const char *release; /* its version, for messages; must agree in all ranks; NULL: none */
    const char *see;     /* the program's settings of the meeting */
    const struct pvn_boot_key
        *key;    /* ranks prove it, and their connections are sealed; NULL: none */
    int partial; /* rank 0 goes on without those that have not come: their fd is -1 */
};

/*
 * Fills b (free with pvn_boot_close). 0, or a negative errno with a sentence in why. A process that is not a rank
 * that connects to rank 0 (a scanner, a rank of another job) is refused without delaying the
 * others. A rank of this job that has to be refused ends the meeting at once, with its host and the reason in why.
 * With a key nothing that a connection says counts until it is sealed: who has no key, or another one, is refused with a
 * line on stderr, and the meeting goes on.
 */
int pvn_boot_tcp_meet(struct pvn_boot *b, const struct pvn_boot_tcp *t, char *why, size_t why_len);

#ifdef __cplusplus
}
#endif

#endif
